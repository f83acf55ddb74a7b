// What `/metrics` says, and what follows from two readings of it. Knows no page.

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

// Samples of Prometheus' text format: { name, labels, value }.
export function parseMetrics(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (match === null) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    samples.push({ name: match[1], labels, value: Number(match[3]) });
  }
  return samples;
}

export class Reading {
  constructor(text, at) {
    this.at = at;
    this.byName = Map.groupBy(parseMetrics(text), ({ name }) => name);
  }

  all(name) {
    return this.byName.get(name) ?? [];
  }

  // The sum over all labels; 0 if it was never counted.
  value(name) {
    return this.all(name).reduce((sum, { value }) => sum + value, 0);
  }

  // Sums by the value of one label.
  by(name, label) {
    const sums = new Map();
    for (const { labels, value } of this.all(name)) sums.set(labels[label], (sums.get(labels[label]) ?? 0) + value);
    return sums;
  }
}

// How much a counter grew between two readings. A server that began anew counts from 0.
export function growth(before, now, name) {
  const grown = now.value(name) - before.value(name);
  return grown < 0 ? now.value(name) : grown;
}

export const rate = (before, now, name) => (1000 * growth(before, now, name)) / (now.at - before.at);

// A quantile of what a histogram counted between two readings, as Prometheus' histogram_quantile has it;
// null if nothing was counted.
export function quantile(before, now, name, share) {
  const bounds = new Map();
  const add = (reading, sign) => {
    for (const { labels, value } of reading.all(`${name}_bucket`)) {
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      bounds.set(bound, (bounds.get(bound) ?? 0) + sign * value);
    }
  };
  add(now, 1);
  if (now.value(`${name}_count`) >= before.value(`${name}_count`)) add(before, -1);
  const buckets = [...bounds].sort(([a], [b]) => a - b);
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const wanted = share * total;
  let [low, below] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= wanted) return bound === Infinity ? low : low + ((bound - low) * (wanted - below)) / (count - below);
    [low, below] = [bound, count];
  }
  return low;
}
