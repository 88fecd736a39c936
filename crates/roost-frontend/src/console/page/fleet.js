// The map of workers: a tile for each rank, or a table of them.

import { arrange, element, facts, keep, number, percent, rankName, say, share } from "./text.js";

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
  constructor({ place, detail, said, shade, asTable }) {
    Object.assign(this, { place, detail, said, shade, asTable });
    this.chosen = null;
    /// The only tile that Tab stops at; arrow keys go on from there.
    this.stop = null;
    this.pools = [];
    this.parts = new Map();
    shade.addEventListener("change", () => this.draw());
    asTable.addEventListener("change", () => this.draw());
    place.addEventListener("keydown", (event) => this.move(event));
    place.addEventListener("focusin", ({ target }) => target.dataset?.rank && this.rest(target));
  }

  take(pools) {
    const seen = new Map();
    this.pools = pools.map((pool) => {
      const name = `${pool.model} ${pool.version} ${pool.role}`;
      seen.set(name, (seen.get(name) ?? 0) + 1);
      return { ...pool, key: `${name} ${seen.get(name)}` };
    });
    this.draw();
  }

  draw() {
    const ranks = this.pools.flatMap((pool) => pool.ranks);
    const kind = SHADES[this.shade.value];
    const most = kind.most ?? Math.max(...ranks.map(kind.of), 1);
    const parts = keep(this.parts, this.pools.map(({ key }) => key), (at) => part(this.pools[at]));
    this.pools.forEach((pool, at) => {
      const { title, map, rows, scroll, tiles, lines } = parts[at];
      say(title, `${pool.model}, ${pool.role}: ${pool.ranks.length} ranks, ${number(pool.active_requests)} running, `
        + `${number(pool.queued_requests)} waiting, ${number(pool.bindings)} sessions, ${number(pool.index.residencies)} blocks indexed`);
      map.className = ranks.length >= DENSE ? "map dense" : "map";
      map.hidden = this.asTable.checked;
      scroll.hidden = !this.asTable.checked;
      const keys = pool.ranks.map((rank) => `${pool.key} ${rankName(rank)}`);
      if (this.asTable.checked) {
        arrange(rows, keep(lines, keys, tableRow).map(({ line, cells }, at) => {
          texts(pool.ranks[at]).forEach((text, which) => say(cells[which], text));
          return line;
        }));
      } else {
        const tile = (at) => element("li", {},
          element("button", { type: "button", "data-rank": keys[at], onclick: () => this.choose(keys[at]) }));
        arrange(map, keep(tiles, keys, tile).map((line, at) => {
          this.paint(line.firstElementChild, pool.ranks[at], kind, most);
          return line;
        }));
      }
    });
    arrange(this.place, parts.flatMap(({ title, map, scroll }) => [title, map, scroll]));
    if (!this.stop?.isConnected) this.rest(this.place.querySelector("[data-rank]"));
    this.tell();
  }

  paint(tile, rank, kind, most) {
    const value = kind.of(rank);
    const shade = value ? Math.min(4, Math.max(1, Math.ceil((value / most) * 4))) : 0;
    say(tile, kind.show(value));
    for (const [name, now] of [
      ["data-shade", String(shade)],
      ["data-state", rank.state],
      ["aria-pressed", String(this.chosen === tile.dataset.rank)],
      ["aria-label", `worker ${rank.worker} rank ${rank.dp_rank}, ${rank.state}, ${this.shade.selectedOptions[0].text} ${kind.show(value)}`],
      ["title", `${rankName(rank)} ${rank.state}`],
      ["tabindex", tile === this.stop ? "0" : "-1"],
    ]) if (tile.getAttribute(name) !== now) tile.setAttribute(name, now);
  }

  choose(key) {
    this.chosen = this.chosen === key ? null : key;
    this.draw();
    say(this.said, this.detail.innerText.replaceAll("\n", " "));
  }

  /// Tab comes back to where one was.
  rest(tile) {
    if (tile === this.stop) return;
    this.stop?.setAttribute("tabindex", "-1");
    this.stop = tile;
    tile?.setAttribute("tabindex", "0");
  }

  /// Arrows go from tile to tile, and from row to row.
  move(event) {
    if (!event.target.dataset?.rank) return;
    const tiles = [...this.place.querySelectorAll("[data-rank]")];
    const here = tiles.indexOf(event.target);
    const to = {
      ArrowRight: () => tiles[here + 1], ArrowLeft: () => tiles[here - 1], Home: () => tiles[0], End: () => tiles.at(-1),
      ArrowDown: () => nextRow(tiles.slice(here + 1), tiles[here]), ArrowUp: () => nextRow(tiles.slice(0, here).reverse(), tiles[here]),
    }[event.key];
    if (!to) return;
    to()?.focus();
    event.preventDefault();
  }

  /// The chosen rank, in full.
  tell() {
    const pool = this.pools.find(({ key }) => this.chosen?.startsWith(`${key} `));
    const rank = pool?.ranks.find((rank) => `${pool.key} ${rankName(rank)}` === this.chosen);
    const pairs = !rank ? [] : [
      ["worker", rank.worker], ["rank", rank.dp_rank], ["state", rank.state], ["address", rank.address ?? "–"],
      ["running", rank.active_requests], ["prompt tokens to compute", number(rank.prefill_tokens)],
      ["blocks in use", number(rank.used_blocks ?? rank.active_blocks)], ["of", number(rank.total_blocks)],
      ["sessions", rank.sessions], ["placed", number(rank.placed)],
      ["hit rate", percent(share(rank.cached_tokens, rank.asked_tokens))], ["KV events", rank.events ? "come" : "missing"],
    ];
    const values = [...this.detail.querySelectorAll("dd")];
    if (values.length !== pairs.length) this.detail.replaceChildren(...(rank ? [facts(pairs)] : []));
    else values.forEach((value, at) => say(value, String(pairs[at][1])));
  }
}

/// The tile of the next row that is nearest; `tiles` begin with the next one.
function nextRow(tiles, from) {
  const row = tiles.find((tile) => tile.offsetTop !== from.offsetTop)?.offsetTop;
  const far = (tile) => Math.abs(tile.offsetLeft - from.offsetLeft);
  return tiles.filter((tile) => tile.offsetTop === row).sort((a, b) => far(a) - far(b))[0];
}

/// The elements of a pool: they stay, and so do focus, selection and scroll position.
function part(pool) {
  const head = ["Worker", "State", "Running", "Prefill tokens", "KV use", "Sessions", "Hit rate", "Placed", "Address"];
  const rows = element("tbody");
  const name = `ranks of ${pool.model}, ${pool.role}`;
  const scroll = element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": name },
    element("table", { "aria-label": name },
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))), rows));
  return {
    title: element("h3"), map: element("ul", { "aria-label": `${name}; arrow keys go from one to the next` }), rows, scroll,
    tiles: new Map(), lines: new Map(),
  };
}

function tableRow() {
  const worker = element("code");
  const [state, address] = [element("td"), element("td")];
  const numbers = Array.from({ length: 6 }, () => element("td", { class: "n" }));
  return { line: element("tr", {}, element("td", {}, worker), state, ...numbers, address), cells: [worker, state, ...numbers, address] };
}

function texts(rank) {
  return [
    rankName(rank), rank.state, number(rank.active_requests), number(rank.prefill_tokens), percent(kvUse(rank)), number(rank.sessions),
    percent(share(rank.cached_tokens, rank.asked_tokens)), number(rank.placed), rank.address ?? "–",
  ];
}
