// The latest decisions; an opened one says why, and stays as it is while others come.

import { element, facts, number, seconds } from "./text.js";

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
    this.open = null;
    this.kept = null;
  }

  take(decisions) {
    const focused = document.activeElement?.dataset?.decision;
    const shown = decisions.map((made) => ({ ...made, key: `${made.model} ${made.role} ${made.number}` }));
    this.kept = shown.find((made) => made.key === this.open) ?? (this.open ? this.kept : null);
    if (this.kept && !shown.includes(this.kept)) shown.push(this.kept);
    this.shown = shown;
    this.draw();
    if (focused) this.list.querySelector(`[data-decision="${CSS.escape(focused)}"]`)?.focus();
  }

  draw() {
    this.list.replaceChildren(...this.shown.map((made) => {
      const open = made.key === this.open;
      const line = element("button", {
        type: "button", class: "decision", "data-decision": made.key, "aria-expanded": String(open),
        onclick: () => this.toggle(made),
      },
      element("span", { class: "soft" }, `${seconds(made.age_ms / 1000)} ago`),
      element("span", {}, made.session ?? made.request ?? "a request"),
      element("span", {}, made.worker ? `→ ${made.worker.hex}/${made.worker.dp_rank}` : "refused"),
      element("span", {}, made.reason ?? "rejected"),
      element("span", { class: "n" }, `${number(made.isl_tokens)} tokens`));
      return element("li", {}, line, open ? why(made) : null);
    }));
  }

  toggle(made) {
    this.open = this.open === made.key ? null : made.key;
    this.kept = this.open ? made : null;
    this.draw();
    this.list.querySelector(`[data-decision="${CSS.escape(made.key)}"]`)?.focus();
  }
}

function why(made) {
  const cause = made.worker ? `Placed on ${made.worker.hex} rank ${made.worker.dp_rank}: ${REASONS[made.reason] ?? made.reason}.`
    : `Refused: ${made.error}`;
  const moved = made.affinity.moved_because ? ` The session left its rank because: ${made.affinity.moved_because}.` : "";
  const head = ["Worker", "Cached blocks", "Prefill tokens", "Blocks in use", "Running", "Prefill cost", "Decode cost", "Requests",
    "Future", "Bonus", "Total"];
  const rows = made.candidates.map((one) => element("tr", { class: one.chosen ? "chosen" : null },
    element("td", {}, element("code", {}, `${one.worker.hex}/${one.worker.dp_rank}`), one.chosen ? " chosen" : ""),
    ...[tiers(one.overlap_blocks), number(one.load.prefill_tokens), number(one.load.active_blocks), number(one.load.active_requests),
      number(one.cost.prefill), number(one.cost.decode), number(one.cost.requests), number(one.cost.future), number(one.cost.bonus),
      number(one.cost.total)].map((text) => element("td", { class: "n" }, text))));
  return element("div", { class: "why", role: "region", "aria-label": "why" },
    element("p", {}, cause + moved),
    facts([["request", made.request ?? "–"], ["session", made.session ?? "–"], ["affinity", made.affinity.outcome],
      ["prompt", `${number(made.isl_tokens)} tokens`], ["block", `${made.block_size} tokens`], ["considered", `${made.considered} ranks`]]),
    rows.length ? element("table", {},
      element("thead", {}, element("tr", {}, ...head.map((name, at) => element("th", { scope: "col", class: at ? "n" : null }, name)))),
      element("tbody", {}, ...rows)) : null);
}

/// Blocks on the device, and in further tiers where there are any.
function tiers({ device, host, disk, external }) {
  const more = host + disk + external;
  return more > 0 ? `${number(device)} + ${number(more)}` : number(device);
}
