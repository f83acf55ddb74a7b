// An answer as tokens, coloured by how likely each was; for the chosen one, the alternatives it had.

import { h, svg } from "./dom.js";

// Probabilities at which the colour changes; the last is not coloured at all.
const STEPS = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9];
// Tokens of one element; a browser skips those that are out of sight.
const RUN = 200;

export class HeatView {
  // tokens: [text, log-probability, [[text, log-probability], ...]]
  constructor(tokens) {
    this.tokens = tokens;
    this.chosen = 0;
    this.spans = tokens.map(([text, logprob], index) => h("span", { class: `token heat-${level(logprob)}`, "data-index": index }, text));
    const runs = [];
    for (let at = 0; at < this.spans.length; at += RUN) {
      runs.push(h("span", { class: "heat-run" }, ...this.spans.slice(at, at + RUN)));
    }
    this.text = h("div", {
      class: "heat-text", tabindex: "0", role: "application", "aria-roledescription": "tokens",
      "aria-label": "Tokens of the answer. Arrow keys go from one to the next.",
      onkeydown: (event) => this.onKey(event),
      onclick: (event) => this.choose(indexOf(event)),
      onmouseover: (event) => this.choose(indexOf(event)),
    }, ...runs);
    this.details = h("div", { class: "heat-details", "aria-live": "polite" });
    this.element = h("div", { class: "heat" }, legend(), this.text, this.details);
    this.choose(0);
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.choose(Math.min(this.tokens.length - 1, Math.max(0, this.chosen + step)));
    this.spans[this.chosen].scrollIntoView({ block: "nearest" });
  }

  choose(index) {
    if (index === undefined || this.tokens[index] === undefined) return;
    this.spans[this.chosen].classList.remove("chosen");
    this.chosen = index;
    this.spans[index].classList.add("chosen");
    const [text, logprob, top] = this.tokens[index];
    const others = top.some(([other]) => other === text) ? top : [[text, logprob], ...top];
    this.details.replaceChildren(
      h("p", {}, `Token ${index + 1} of ${this.tokens.length}: `, h("code", {}, visible(text)), ` with ${percent(logprob)} (log-probability ${logprob.toFixed(3)})`),
      h("table", {}, h("caption", { class: "hidden-visually" }, "Most likely tokens at this place"),
        h("tbody", {}, ...others.map(([other, value]) => row(other, value, other === text)))));
  }
}

const level = (logprob) => STEPS.filter((step) => Math.exp(logprob) >= step).length;

function indexOf(event) {
  const index = event.target.dataset?.index;
  return index === undefined ? undefined : Number(index);
}

const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(logprob > -2.3 ? 1 : 2)} %`;

// Spaces and breaks that would not be seen.
const visible = (text) => text.replaceAll("\n", "⏎").replaceAll(" ", "␣") || "(empty)";

function row(text, logprob, isChosen) {
  const bar = svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { width: Math.max(0.5, 100 * Math.exp(logprob)), height: 6 }));
  return h("tr", { class: isChosen && "chosen" }, h("th", { scope: "row" }, h("code", {}, visible(text))), h("td", {}, bar), h("td", {}, percent(logprob)));
}

function legend() {
  const squares = Array.from({ length: STEPS.length + 1 }, (_, index) => h("i", { class: `heat-${index}` }));
  return h("div", { class: "heat-legend", "aria-hidden": "true" }, "unlikely", h("span", {}, ...squares), "certain");
}
