// Ties the parts of the page to the state of the server.

import { Curves } from "./curves.js";
import { Decisions } from "./decisions.js";
import { Fleet } from "./fleet.js";
import { showSessions } from "./sessions.js";
import { Source } from "./source.js";
import { element, say } from "./text.js";

const at = (id) => document.getElementById(id);

const curves = new Curves(at("tiles"));
const fleet = new Fleet({ place: at("pools"), detail: at("rank"), said: at("rank-said"), shade: at("shade"), asTable: at("as-table") });
const decisions = new Decisions(at("decision-list"));
at("legend").append("less ", ...Array.from({ length: 5 }, () => element("i")), " more");

function stand(word, text = word) {
  at("state").dataset.state = word;
  say(at("state"), text);
}

let told = "";
function showAlarms(alarms) {
  // Written only when they change, so that a screen reader hears each once.
  const now = JSON.stringify(alarms);
  if (now === told) return;
  told = now;
  at("alarms").replaceChildren(...alarms.map(({ level, text }) =>
    element("p", { class: "alarm", "data-level": level }, element("b", {}, level === "critical" ? "Critical: " : "Warning: "), text)));
}

const source = new Source({
  state(state) {
    at("key").hidden = true;
    stand(state.state);
    showAlarms(state.alarms);
    curves.take(state);
    fleet.take(state.pools);
    showSessions(at("session-rows"), at("found"), state.pools);
    decisions.take(state.decisions);
    document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
  },
  lost(error) {
    stand("lost", `no answer: ${error.message}`);
  },
  locked(wrong) {
    stand("lost", "locked");
    at("key").hidden = false;
    at("key-said").textContent = wrong ? "That key is not accepted." : "";
    at("key-text").focus();
  },
});

at("key").addEventListener("submit", (event) => {
  event.preventDefault();
  source.setKey(at("key-text").value);
});
at("pause").addEventListener("click", () => {
  source.pause(!source.paused);
  at("pause").setAttribute("aria-pressed", String(source.paused));
  at("pause").textContent = source.paused ? "Go on" : "Pause";
});
let typing = null;
at("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => source.search(at("search").value.trim()), 200);
});
source.start();
