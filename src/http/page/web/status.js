// The status page: reads `/metrics` and its neighbours every second or two and draws what the server is doing.

import { call, callJson } from "./api.js";
import { Chart } from "./charts.js";
import { banner, byId, closeBanner, h } from "./dom.js";
import { growth, quantile, rate, Reading } from "./metrics.js";
import { toggleTheme } from "./prefs.js";

const EVERY = 1000;
// The charts show the last minute, and more as it is there.
const LEAST_SPAN = 60_000;
const SPAN = 5 * 60_000;
// Rates and quantiles are of so long a time, so that a single answer doesn't make them jump.
const WINDOW = 10_000;

const readings = [];
const points = [];

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const count = (value) => whole.format(value);
const decimal = (value) => (value >= 100 ? count(value) : value.toFixed(1));
const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
const seconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(2)} s`);

const charts = {
  tokens: new Chart("Tokens per second", [{ label: "generated", class: "first" }, { label: "prompt", class: "second" }], decimal),
  requests: new Chart("Sequences", [{ label: "running", class: "first" }, { label: "waiting", class: "second" }], count),
  cache: new Chart("KV cache", [{ label: "in use", class: "first" }, { label: "prefix hits", class: "second" }], percent, 1),
  latency: new Chart("Latency, median", [{ label: "first token", class: "first" }, { label: "between tokens", class: "second" }], seconds),
};

const TILES = [
  ["running", "Running"], ["waiting", "Waiting"], ["kv", "KV cache in use"], ["hits", "Prefix tokens found"], ["first", "First token, p50 / p95"],
  ["gap", "Between tokens, p50 / p95"], ["ended", "Answers ended"], ["refused", "Refused with 429"],
];
const tiles = Object.fromEntries(TILES.map(([name]) => [name, h("dd", {}, "–")]));

function build() {
  byId("tiles").append(...TILES.map(([name, label]) => h("div", { class: "tile" }, h("dt", {}, label), tiles[name])));
  byId("charts").append(...Object.values(charts).map((chart) => chart.element));
  byId("theme").addEventListener("click", toggleTheme);
}

// The oldest reading within the window before `reading`.
const windowStart = (reading) => readings.find(({ at }) => at >= reading.at - WINDOW) ?? reading;

function record(reading) {
  readings.push(reading);
  while (readings.length > 2 && readings[0].at < reading.at - SPAN) readings.shift();
  const before = readings.at(-2);
  if (before === undefined) return;
  const start = windowStart(reading);
  const asked = growth(start, reading, "vllm:prefix_cache_queries_total");
  points.push({
    at: reading.at,
    tokens: [rate(before, reading, "vllm:generation_tokens_total"), rate(before, reading, "vllm:prompt_tokens_total")],
    requests: [reading.value("vllm:num_requests_running"), reading.value("vllm:num_requests_waiting")],
    cache: [reading.value("vllm:kv_cache_usage_perc"), asked > 0 ? growth(start, reading, "vllm:prefix_cache_hits_total") / asked : null],
    latency: ["vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"].map((name) => quantile(start, reading, name, 0.5)),
  });
  while (points[0].at < reading.at - SPAN) points.shift();
}

function drawTiles(reading) {
  const first = readings[0];
  tiles.running.textContent = count(reading.value("vllm:num_requests_running"));
  tiles.waiting.textContent = count(reading.value("vllm:num_requests_waiting"));
  tiles.kv.textContent = percent(reading.value("vllm:kv_cache_usage_perc"));
  const asked = reading.value("vllm:prefix_cache_queries_total");
  tiles.hits.textContent = asked > 0 ? percent(reading.value("vllm:prefix_cache_hits_total") / asked) : "–";
  for (const [tile, name] of [["first", "vllm:time_to_first_token_seconds"], ["gap", "vllm:inter_token_latency_seconds"]]) {
    const both = [0.5, 0.95].map((share) => quantile(first, reading, name, share) ?? quantile(EMPTY, reading, name, share));
    tiles[tile].textContent = both[0] === null ? "–" : both.map(seconds).join(" / ");
  }
  tiles.ended.textContent = count(reading.value("vllm:request_success_total"));
  tiles.refused.textContent = count(reading.value("sconce:admission_rejections_total"));
}

const EMPTY = new Reading("", 0);

const ENDS = { stop: "ended by themselves", length: "reached their length", abort: "stopped by the client", error: "failed" };

function drawTables(reading, models) {
  const lora = reading.all("vllm:lora_requests_info").at(-1)?.labels ?? {};
  const names = (text) => (text ?? "").split(",").filter(Boolean);
  const inState = (id) => [names(lora.running_lora_adapters).includes(id) && "running", names(lora.waiting_lora_adapters).includes(id) && "waiting"].filter(Boolean).join(", ");
  byId("models").replaceChildren(...models.map(({ id, root, parent, max_model_len: length }) => h("tr", {},
    h("th", { scope: "row" }, id), h("td", {}, parent ? `adapter of ${parent}` : root), h("td", { class: "number" }, count(length)), h("td", {}, inState(id) || "–"))));
  byId("ends").replaceChildren(...[...reading.by("vllm:request_success_total", "finished_reason")].map(([reason, value]) => h("tr", {},
    h("th", { scope: "row" }, ENDS[reason] ?? reason), h("td", { class: "number" }, count(value)))));
  const routes = new Map();
  for (const { labels, value } of reading.all("http_requests_total")) {
    const row = routes.get(labels.handler) ?? {};
    row[labels.status] = (row[labels.status] ?? 0) + value;
    routes.set(labels.handler, row);
  }
  byId("routes").replaceChildren(...[...routes].filter(([handler]) => handler.startsWith("/v1/") && handler !== "/v1/models").sort(([a], [b]) => a.localeCompare(b))
    .map(([handler, row]) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, handler)),
      ...["2xx", "4xx", "5xx"].map((status) => h("td", { class: "number" }, count(row[status] ?? 0))))));
  drawKeys(reading);
  byId("no-routes").hidden = byId("routes").childElementCount > 0;
}

const KEY_COLUMNS = ["requests", "refusals", "prompt_tokens", "generation_tokens"];

// What each key has used since the start; nothing where no key is needed.
function drawKeys(reading) {
  const columns = KEY_COLUMNS.map((name) => reading.by(`sconce:key_${name}_total`, "key"));
  const names = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a.localeCompare(b));
  byId("keys-section").hidden = names.every((name) => name === "anonymous");
  byId("keys").replaceChildren(...names.map((name) => h("tr", {}, h("th", { scope: "row" }, name),
    ...columns.map((column) => h("td", { class: "number" }, count(column.get(name) ?? 0))))));
}

function showState(state, text) {
  byId("state").dataset.state = state;
  byId("state").lastElementChild.textContent = text;
}

let models = [];

async function read() {
  const [metrics, load] = await Promise.all([call("/metrics").then((response) => response.text()), callJson("/load")]);
  const reading = new Reading(metrics, Date.now());
  const health = await fetch("/health", { cache: "no-store" });
  if (models.length === 0 || readings.length % 30 === 0) models = (await callJson("/v1/models")).data;
  record(reading);
  showState(health.ok ? "ready" : "down", health.ok ? `Ready, ${load.server_load} in progress` : "Not ready");
  drawTiles(reading);
  drawTables(reading, models);
  drawCharts();
  byId("version").textContent = reading.all("sconce:build_info")[0]?.labels.version ?? "";
}

// A gap in the lines, for the time in which nothing could be read.
function recordGap() {
  if (points.length === 0) return;
  points.push({ at: Date.now(), tokens: [null, null], requests: [null, null], cache: [null, null], latency: [null, null] });
  drawCharts();
}

function drawCharts() {
  if (points.length === 0) return;
  const span = Math.min(SPAN, Math.max(LEAST_SPAN, points.at(-1).at - points[0].at));
  for (const [name, chart] of Object.entries(charts)) chart.draw(points.map((point) => ({ at: point.at, values: point[name] })), span);
}

async function loop() {
  for (;;) {
    try {
      if (!document.hidden) await read();
      closeBanner("offline");
    } catch (error) {
      if (error.kind === "key") {
        showState("down", "No key");
        banner("offline", "Without an API key there is nothing to show. Reload this page to enter one.");
        return;
      }
      recordGap();
      showState("down", "Not reachable");
      banner("offline", error.kind === "offline" ? "The server can't be reached. This page tries again every second." : `The status can't be read: ${error.message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY));
  }
}

build();
await loop();
