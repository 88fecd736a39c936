// Rates and quantiles of the last minutes: differences of what the server has counted, taken here.

import { element, number, percent, say, seconds, share } from "./text.js";

const KEPT = 150;
/// So many points fill a tile; fewer stand at its right.
const WIDTH = 40;

const TILES = [
  ["Running requests", (d) => [d.active], number],
  ["Requests a second", (d) => [d.requests, d.failed], number, "failed"],
  ["Output tokens a second", (d) => [d.tokens], number],
  ["Time to first token, p50", (d) => [d.ttft50, d.ttft99], seconds, "p99"],
  ["Between tokens, p50", (d) => [d.itl50, d.itl99], seconds, "p99"],
  ["Prompt tokens cached", (d) => [d.hits], percent],
];

export class Curves {
  constructor(place) {
    this.points = [];
    this.before = null;
    this.tiles = TILES.map(([title, values, show, second]) => {
      const [main, other] = [element("b"), element("small")];
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      place.append(element("figure", { class: "tile" }, element("figcaption", {}, title), element("p", {}, main, other), svg));
      return { values, show, second, main, other, svg };
    });
  }

  take(state) {
    const now = { at: state.at_ms, ...state.curves, asked: 0, found: 0 };
    for (const pool of state.pools) {
      for (const rank of pool.ranks) {
        now.asked += rank.asked_tokens;
        now.found += rank.cached_tokens;
      }
    }
    if (this.before) this.points.push(difference(this.before, now));
    if (this.points.length > KEPT) this.points.shift();
    this.before = now;
    this.draw();
  }

  draw() {
    const last = this.points.at(-1);
    for (const { values, show, second, main, other, svg } of this.tiles) {
      const [first, further] = last ? values(last) : [];
      say(main, show(first));
      say(other, second && further != null ? `${second} ${show(further)}` : "");
      const lines = this.points.map(values);
      const width = Math.max(lines.length, WIDTH) - 1;
      svg.setAttribute("viewBox", `0 0 ${width} 100`);
      const top = Math.max(...lines.flat().filter((value) => value != null), 1e-9);
      const paths = (lines[0] ?? []).map((_, which) => {
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("d", line(lines.map((values) => values[which]), top, width));
        if (which) path.setAttribute("class", "second");
        return path;
      });
      if (paths.length) paths.unshift(area(paths[0].getAttribute("d"), width));
      svg.replaceChildren(...paths);
    }
  }
}

/// What is below a line: each of its pieces goes down to the ground.
function area(d, width) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const pieces = d.split("M").filter(Boolean).map((piece) => {
    const first = piece.split(" ")[0];
    const last = piece.includes("L") ? piece.slice(piece.lastIndexOf("L") + 1).split(" ")[0] : first;
    return `M${piece}L${Math.min(last, width)} 100L${first} 100Z`;
  });
  path.setAttribute("d", pieces.join(""));
  path.setAttribute("class", "area");
  return path;
}

function line(values, top, width) {
  let path = "";
  let drawing = false;
  values.forEach((value, at) => {
    if (value == null) {
      drawing = false;
      return;
    }
    const x = width + 1 - values.length + at;
    path += `${drawing ? "L" : "M"}${x} ${(97 - 92 * (value / top)).toFixed(1)}`;
    drawing = true;
  });
  return path;
}

/// What happened between two states; a server that began anew has counted less, and says nothing yet.
export function difference(before, now) {
  const span = Math.max(now.at - before.at, 1) / 1000;
  const rate = (name) => Math.max(now[name] - before[name], 0) / span;
  return {
    active: now.active,
    requests: rate("succeeded") + rate("failed"),
    failed: rate("failed"),
    tokens: rate("output_tokens"),
    ttft50: quantile(before.ttft_s, now.ttft_s, 0.5),
    ttft99: quantile(before.ttft_s, now.ttft_s, 0.99),
    itl50: quantile(before.itl_s, now.itl_s, 0.5),
    itl99: quantile(before.itl_s, now.itl_s, 0.99),
    hits: now.asked > before.asked ? share(now.found - before.found, now.asked - before.asked) : null,
  };
}

/// The value below which this part of the new values lies, between the bounds of its bucket.
export function quantile(before, now, part) {
  const count = now.count - before.count;
  if (!(count > 0)) return null;
  const wanted = part * count;
  let below = 0;
  for (let at = 0; at < now.bounds.length; at += 1) {
    const here = now.cumulative[at] - (before.cumulative[at] ?? 0);
    if (here >= wanted) {
      const low = at ? now.bounds[at - 1] : 0;
      return low + (now.bounds[at] - low) * ((wanted - below) / Math.max(here - below, 1));
    }
    below = here;
  }
  return now.bounds.at(-1) ?? null;
}
