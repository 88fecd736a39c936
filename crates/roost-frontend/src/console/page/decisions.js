// The latest decisions; an opened one says why, and stays as it is while others come.

import { arrange, element, exact, facts, keep, number, say, seconds } from "./text.js";

const REASONS = {
  session: "its session is bound there",
  spill: "its session left a hot rank for it",
  pin: "the client named it",
  cost: "it has the lowest cost",
  mode: "it was its turn",
  last_resort: "no healthy rank was left",
};

export class Decisions {
  constructor(list) {
    this.list = list;
    this.kept = new Map();
    this.open = null;
  }

  take(decisions) {
    const made = new Map(decisions.map((one) => [`${one.model} ${one.role} ${one.number} ${one.request}`, one]));
    const keys = [...made.keys()];
    // An opened one stays at the end when it is no longer among the latest.
    if (this.open && !made.has(this.open) && this.kept.has(this.open)) keys.push(this.open);
    arrange(this.list, keep(this.kept, keys, (at) => this.item(keys[at], made.get(keys[at]))).map(({ line, age }, at) => {
      const one = made.get(keys[at]);
      say(age, one ? `${seconds(one.age_ms / 1000)} ago` : "earlier");
      return line;
    }));
  }

  item(key, made) {
    const age = element("span", { class: "soft" });
    const button = element("button", {
      type: "button", class: "decision", "aria-expanded": "false", onclick: () => this.toggle(key),
    },
    age,
    element("span", {}, made.session ?? made.request ?? "a request"),
    element("span", {}, made.worker ? `→ ${made.worker.hex}/${made.worker.dp_rank}` : "refused"),
    element("span", {}, made.reason ?? "rejected"),
    element("span", { class: "n" }, `${number(made.isl_tokens)} tokens`));
    return { line: element("li", {}, button), button, age, made };
  }

  toggle(key) {
    const before = this.open;
    this.open = before === key ? null : key;
    for (const one of [before, this.open]) {
      const item = this.kept.get(one);
      if (!item) continue;
      const open = one === this.open;
      item.button.setAttribute("aria-expanded", String(open));
      arrange(item.line, open ? [item.button, why(item.made)] : [item.button]);
    }
  }
}

function why(made) {
  const cause = made.worker ? `Placed on ${made.worker.hex} rank ${made.worker.dp_rank}: ${REASONS[made.reason] ?? made.reason}.`
    : `Refused: ${made.error}`;
  const moved = made.affinity.moved_because ? ` The session left its rank because: ${made.affinity.moved_because}.` : "";
  const head = ["Worker", "Cached blocks", "Prefill tokens", "Blocks in use", "Running", "Prefill cost", "Decode cost", "Requests",
    "Future", "Bonus", "Total"];
  const rows = made.candidates.map(({ chosen, worker, overlap_blocks, load, cost }) => {
    const numbers = [load.prefill_tokens, load.active_blocks, load.active_requests, cost.prefill, cost.decode, cost.requests, cost.future,
      cost.bonus, cost.total].map(exact);
    return element("tr", { class: chosen ? "chosen" : null },
      element("td", {}, element("code", {}, `${worker.hex}/${worker.dp_rank}`), chosen ? " chosen" : ""),
      ...[tiers(overlap_blocks), ...numbers].map((text) => element("td", { class: "n" }, text)));
  });
  return element("div", { class: "why", role: "region", "aria-label": "why" },
    element("p", {}, cause + moved),
    facts([["request", made.request ?? "–"], ["session", made.session ?? "–"], ["affinity", made.affinity.outcome],
      ["prompt", `${number(made.isl_tokens)} tokens`], ["block", `${made.block_size} tokens`], ["considered", `${made.considered} ranks`]]),
    rows.length ? element("table", { "aria-label": "candidates" },
      element("thead", {}, element("tr", {}, ...head.map((name, at) => element("th", { scope: "col", class: at ? "n" : null }, name)))),
      element("tbody", {}, ...rows)) : null);
}

/// Blocks on the device, and in further tiers where there are any.
function tiers({ device, host, disk, external }) {
  const more = host + disk + external;
  return more > 0 ? `${exact(device)} + ${exact(more)}` : exact(device);
}
