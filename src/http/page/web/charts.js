// Lines over time as SVG, with the newest value and a table of the same for those who can't see them.

import { h, svg } from "./dom.js";

const WIDTH = 600;
const HEIGHT = 150;
// Room below for the time, above for the line's width.
const BASE = HEIGHT - 18;
const TOP = 6;

export class Chart {
  // series: [{ label, class }]; format: number -> text; most: the top of the scale, or null to fit
  constructor(title, series, format, most = null) {
    Object.assign(this, { title, series, format, most });
    this.now = series.map(() => h("strong", {}, "–"));
    this.plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": title, preserveAspectRatio: "none" });
    this.top = h("span", { class: "scale" });
    this.legend = h("ul", { class: "legend" }, ...series.map(({ label, class: name }, index) => h("li", { class: name }, h("i", {}), label, " ", this.now[index])));
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("h2", {}, title), this.legend),
      h("div", { class: "plot-box" }, this.top, this.plot, h("div", { class: "times" }, this.oldest = h("span", {}), h("span", {}, "now"))));
  }

  // points: [{ at, values: [number or null, ...] }], the oldest first; span in milliseconds
  draw(points, span) {
    const end = points.at(-1)?.at ?? 0;
    const shown = points.filter(({ at }) => at >= end - span);
    const highest = Math.max(0, ...shown.flatMap(({ values }) => values.filter((value) => value !== null)));
    const top = this.most ?? niceTop(highest);
    const x = (at) => (WIDTH * (at - (end - span))) / span;
    const y = (value) => BASE - ((BASE - TOP) * Math.min(value, top)) / top;
    const grid = [0, 0.5, 1].map((share) => svg("line", { x1: 0, x2: WIDTH, y1: y(top * share), y2: y(top * share), class: "grid-line" }));
    const lines = this.series.flatMap(({ class: name }, index) => this.line(shown, index, name, x, y));
    this.plot.replaceChildren(...grid, ...lines);
    this.top.textContent = this.format(top);
    this.oldest.textContent = `${Math.round(span / 60_000)} min ago`;
    const last = points.at(-1)?.values ?? [];
    const texts = this.series.map((_, index) => (last[index] === null || last[index] === undefined ? "–" : this.format(last[index])));
    this.now.forEach((element, index) => {
      element.textContent = texts[index];
    });
    this.plot.setAttribute("aria-label", `${this.title}: ${this.series.map(({ label }, index) => `${label} ${texts[index]}`).join(", ")}`);
  }

  // Where nothing was measured, the line has a gap.
  line(points, index, name, x, y) {
    let path = "";
    let area = "";
    let first = null;
    let isDrawing = false;
    const close = (at) => {
      if (first !== null) area += `L${at.toFixed(1)} ${BASE}L${first.toFixed(1)} ${BASE}Z`;
      first = null;
    };
    let before = 0;
    for (const { at, values } of points) {
      const value = values[index];
      if (value === null) {
        if (isDrawing) close(before);
        isDrawing = false;
        continue;
      }
      const point = `${isDrawing ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      path += point;
      area += point;
      first ??= x(at);
      before = x(at);
      isDrawing = true;
    }
    if (isDrawing) close(before);
    return path === "" ? [] : [svg("path", { d: area, class: `area ${name}` }), svg("path", { d: path, class: `line ${name}`, "vector-effect": "non-scaling-stroke" })];
  }
}

// The next of 1, 2, 5, 10, 20, ...
function niceTop(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((top) => top >= value);
}
