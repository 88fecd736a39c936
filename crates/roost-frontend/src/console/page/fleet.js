// The map of workers: a tile for each rank, or a table of them.

import { element, facts, number, percent, rankName, share } from "./text.js";

/// From so many ranks on, tiles are small and bear no number.
const DENSE = 120;

const SHADES = {
  requests: { of: (rank) => rank.active_requests, show: number, most: null },
  kv: { of: kvUse, show: percent, most: 1 },
  sessions: { of: (rank) => rank.sessions, show: number, most: null },
  hits: { of: (rank) => share(rank.cached_tokens, rank.asked_tokens), show: percent, most: 1 },
};

function kvUse(rank) {
  return share(rank.used_blocks ?? rank.active_blocks, rank.total_blocks);
}

export class Fleet {
  constructor({ place, detail, shade, asTable }) {
    Object.assign(this, { place, detail, shade, asTable });
    this.chosen = null;
    this.pools = [];
    shade.addEventListener("change", () => this.draw());
    asTable.addEventListener("change", () => this.draw());
    place.addEventListener("keydown", (event) => this.move(event));
  }

  take(pools) {
    this.pools = pools;
    this.draw();
  }

  draw() {
    const focused = document.activeElement?.dataset?.rank;
    const ranks = this.pools.flatMap((pool) => pool.ranks);
    const kind = SHADES[this.shade.value];
    const most = kind.most ?? Math.max(...ranks.map(kind.of), 1);
    const dense = ranks.length >= DENSE;
    this.place.replaceChildren(...this.pools.flatMap((pool) => [
      element("h3", {}, `${pool.model}, ${pool.role}: ${pool.ranks.length} ranks, ${number(pool.active_requests)} running, `
        + `${number(pool.queued_requests)} waiting, ${number(pool.bindings)} sessions, ${number(pool.index.residencies)} blocks indexed`),
      this.asTable.checked ? table(pool) : this.map(pool, kind, most, dense),
    ]));
    if (focused) this.place.querySelector(`[data-rank="${CSS.escape(focused)}"]`)?.focus();
    this.tell();
  }

  map(pool, kind, most, dense) {
    const tiles = pool.ranks.map((rank) => {
      const value = kind.of(rank);
      const name = `${pool.model} ${pool.role} ${rankName(rank)}`;
      const shade = value ? Math.min(4, Math.max(1, Math.ceil((value / most) * 4))) : 0;
      return element("li", {}, element("button", {
        type: "button",
        "data-rank": name,
        "data-shade": shade,
        "data-state": rank.state,
        "aria-pressed": String(this.chosen === name),
        "aria-label": `worker ${rank.worker} rank ${rank.dp_rank}, ${rank.state}, ${this.shade.selectedOptions[0].text} ${kind.show(value)}`,
        title: `${rankName(rank)} ${rank.state}`,
        onclick: () => this.choose(name),
      }, kind.show(value)));
    });
    return element("ul", { class: dense ? "map dense" : "map" }, ...tiles);
  }

  choose(name) {
    this.chosen = this.chosen === name ? null : name;
    this.draw();
  }

  /// Arrows go from tile to tile.
  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !event.target.dataset?.rank) return;
    const tiles = [...this.place.querySelectorAll("[data-rank]")];
    tiles[tiles.indexOf(event.target) + step]?.focus();
    event.preventDefault();
  }

  /// The chosen rank, in full.
  tell() {
    for (const pool of this.pools) {
      for (const rank of pool.ranks) {
        if (`${pool.model} ${pool.role} ${rankName(rank)}` !== this.chosen) continue;
        this.detail.replaceChildren(facts([
          ["worker", rank.worker], ["rank", rank.dp_rank], ["state", rank.state], ["address", rank.address ?? "–"],
          ["running", rank.active_requests], ["prompt tokens to compute", number(rank.prefill_tokens)],
          ["blocks in use", number(rank.used_blocks ?? rank.active_blocks)], ["of", number(rank.total_blocks)],
          ["sessions", rank.sessions], ["placed", number(rank.placed)],
          ["hit rate", percent(share(rank.cached_tokens, rank.asked_tokens))], ["KV events", rank.events ? "come" : "missing"],
        ]));
        return;
      }
    }
    this.detail.replaceChildren();
  }
}

function table(pool) {
  const head = ["Worker", "State", "Running", "Prefill tokens", "KV use", "Sessions", "Hit rate", "Placed", "Address"];
  return element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `ranks of ${pool.model}, ${pool.role}` },
    element("table", {},
      element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...pool.ranks.map((rank) => element("tr", {},
        element("td", {}, element("code", {}, rankName(rank))), element("td", {}, rank.state),
        ...[number(rank.active_requests), number(rank.prefill_tokens), percent(kvUse(rank)), number(rank.sessions),
          percent(share(rank.cached_tokens, rank.asked_tokens)), number(rank.placed)].map((text) => element("td", { class: "n" }, text)),
        element("td", {}, rank.address ?? "–"))))));
}
