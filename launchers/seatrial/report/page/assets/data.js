// What a page holds, and numbers for people. First part of the page's script.
const root = document.documentElement;
const page = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
root.classList.add("js");

// ---- data: columns by step; null is a gap, undefined is "this run has no such step" ----
const decode = (text) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  return Array.from(new Float32Array(bytes.buffer), (value) => (Number.isNaN(value) ? null : value));
};
const steps = (spans) => spans.flatMap(([first, count, stride]) => Array.from({ length: count }, (_, i) => first + i * stride));
const tables = page.tables.map((table) => ({
  x: table.x ? steps(table.x) : table.times,
  columns: Object.fromEntries(Object.entries(table.columns).map(([name, text]) => [name, decode(text)])),
}));

// x and one array a series, on the union of the steps of all tables that the series come from.
const aligned = (series) => {
  const used = [...new Set(series.map((one) => one.table))];
  if (used.length === 1) return { x: tables[used[0]].x, ys: series.map((one) => tables[one.table].columns[one.column]) };
  const x = Array.from(new Set(used.flatMap((index) => tables[index].x))).sort((a, b) => a - b);
  const row = new Map(x.map((value, index) => [value, index]));
  const ys = series.map((one) => {
    const made = new Array(x.length).fill(undefined);
    const from = tables[one.table];
    from.x.forEach((value, index) => { made[row.get(value)] = from.columns[one.column][index]; });
    // Where this run has a gap, steps of another one must not bridge it.
    let gap = false;
    return made.map((value) => {
      if (value !== undefined) gap = value === null;
      return value === undefined && gap ? null : value;
    });
  });
  return { x, ys };
};

// TensorBoard's exponential moving average, with its correction at the beginning; gaps stay gaps.
const smoothed = (values, weight) => {
  let last = 0, count = 0;
  return values.map((value) => {
    if (value == null) return value;
    last = last * weight + (1 - weight) * value;
    return last / (1 - weight ** ++count);
  });
};

// ---- numbers for people ----
const grouped = (value) => Math.round(value).toLocaleString("en-US");
const number = (value) => {
  if (value == null) return "";
  const size = Math.abs(value);
  if (size >= 1e5) return grouped(value);
  return size && size < 1e-3 ? value.toExponential(4) : String(Number(value.toPrecision(6)));
};
// As many digits as it takes to tell neighbours apart, and no more.
const digits = (step) => [0, 1, 2, 3, 4, 5, 6, 7, 8].find((count) => Math.abs(step * 10 ** count - Math.round(step * 10 ** count)) < 1e-6) ?? 8;
const tick = (value, step, largest) => {
  const size = Math.abs(value);
  if (!value) return "0";
  if (largest < 1e-2) {
    const power = 10 ** Math.floor(Math.log10(size) + 1e-9);
    return value.toExponential(digits(step / power));
  }
  if (size >= 1e4) return `${Number((value / (size >= 1e6 ? 1e6 : 1e3)).toPrecision(4))}${size >= 1e6 ? "M" : "k"}`;
  return value.toFixed(digits(step));
};
const utc = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
const days = (values) => values.map((value, index) => {
  const text = utc(value), before = index ? utc(values[index - 1]).slice(0, 10) : "";
  return text.slice(0, 10) === before ? text.slice(11) : `${text.slice(11)}\n${text.slice(5, 10)}`;
});
const place = (kind, value) => (kind === "time" ? `${utc(value)} UTC` : `step ${grouped(value)}`);
