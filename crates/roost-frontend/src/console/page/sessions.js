// The sessions with the longest context.

import { element, number, percent, seconds } from "./text.js";

export function showSessions(rows, found, pools) {
  const all = pools.flatMap((pool) => pool.sessions.longest.map((session) => ({ ...session, pool })));
  all.sort((a, b) => b.context_tokens - a.context_tokens || a.session.localeCompare(b.session));
  const total = pools.reduce((sum, pool) => sum + pool.sessions.found, 0);
  const several = pools.length > 1;
  found.textContent = `${number(total)} sessions${all.length < total ? `, the ${all.length} longest shown` : ""}`;
  rows.replaceChildren(...all.map((session) => element("tr", {},
    element("td", { class: "name", title: session.session }, element("code", {}, session.session)),
    element("td", {}, element("code", {}, `${session.worker}/${session.dp_rank}`), several ? ` ${session.pool.role}` : ""),
    ...[number(session.context_tokens), percent(session.hit_rate), number(session.turns), number(session.rebinds),
      seconds(session.bound_for_s)].map((text) => element("td", { class: "n" }, text)),
    element("td", {}, session.running ? `${session.running} running` : `idle ${seconds(session.idle_s)}`))));
}
