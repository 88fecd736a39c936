// Numbers, times and elements as the page shows them.

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value == null ? "–" : value < 1000 ? String(Math.round(value * 10) / 10) : compact.format(value));
/// Every digit that tells two costs apart.
const digits = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const exact = (value) => (value == null ? "–" : Math.abs(value) < 1000 ? String(Math.round(value * 10) / 10) : digits.format(value));
export const percent = (part) => (part == null || Number.isNaN(part) ? "–" : `${Math.round(part * 100)} %`);
export const share = (part, whole) => (whole > 0 ? part / whole : null);

export function seconds(value) {
  if (value == null) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(1)} s`;
  if (value < 6000) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

/// A new element: attributes by name, `on…` listeners, then children: elements or text, never markup.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.map((child) => child ?? ""));
  return made;
}

export const facts = (pairs) =>
  element("dl", { class: "facts" }, ...pairs.map(([term, value]) =>
    element("div", {}, element("dt", {}, term), element("dd", {}, String(value)))));

export const rankName = (rank) => `${rank.worker}/${rank.dp_rank}`;

/// Says something anew only if it has changed, so that a screen reader hears it once and a selection stays.
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/// Gives a parent these children, in this order, without touching those that are where they belong.
export function arrange(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const child of children) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}

/// Keeps one thing for each key: those that are still wanted, and new ones from `make`.
export function keep(kept, keys, make) {
  const wanted = new Set(keys);
  for (const key of kept.keys()) if (!wanted.has(key)) kept.delete(key);
  return keys.map((key, at) => {
    if (!kept.has(key)) kept.set(key, make(at));
    return kept.get(key);
  });
}
