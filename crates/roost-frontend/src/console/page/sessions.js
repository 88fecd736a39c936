// The sessions with the longest context.

import { arrange, element, keep, number, percent, say, seconds } from "./text.js";

const kept = new Map();

export function showSessions(rows, found, pools) {
  const all = pools.flatMap((pool) => pool.sessions.longest.map((session) => ({ ...session, pool })));
  all.sort((a, b) => b.context_tokens - a.context_tokens || a.session.localeCompare(b.session));
  const total = pools.reduce((sum, pool) => sum + pool.sessions.found, 0);
  say(found, `${number(total)} sessions${all.length < total ? `, the ${all.length} longest shown` : ""}`);
  const keys = all.map(({ session, pool }) => `${pools.indexOf(pool)} ${session}`);
  arrange(rows, keep(kept, keys, (at) => row(all[at].session)).map(({ line, cells }, at) => {
    texts(all[at], pools.length > 1).forEach((text, which) => say(cells[which], text));
    return line;
  }));
}

/// A row whose first cell is the name, and its other cells.
function row(session) {
  const worker = element("code");
  const role = element("span");
  const numbers = Array.from({ length: 5 }, () => element("td", { class: "n" }));
  const now = element("td");
  const name = element("td", { class: "name", title: session }, element("code", {}, session));
  return { line: element("tr", {}, name, element("td", {}, worker, role), ...numbers, now), cells: [worker, role, ...numbers, now] };
}

function texts(session, several) {
  return [
    `${session.worker}/${session.dp_rank}`, several ? ` ${session.pool.role}` : "",
    number(session.context_tokens), percent(session.hit_rate), number(session.turns), number(session.rebinds), seconds(session.bound_for_s),
    session.running ? `${session.running} running` : `idle ${seconds(session.idle_s)}`,
  ];
}
