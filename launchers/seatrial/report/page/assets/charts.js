// Draws the charts, and moves through them by mouse, touch and keyboard. Second part of the page's script.
// ---- state that all charts share ----
const state = { weight: 0, outliers: false, marks: true, printing: false };
const charts = [];
const tone = { good: "--good", bad: "--bad", warn: "--warn", plain: "--muted", live: "--accent" };

// The range without outliers: far from where nine of ten values lie.
const typical = (values) => {
  const sorted = Float64Array.from(values).sort();
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [low, high] = [at(0.05), at(0.95)];
  const room = 1.5 * (high - low);
  return [Math.max(sorted[0], low - room), Math.min(sorted[sorted.length - 1], high + room)];
};
const niceStep = (span) => {
  const power = 10 ** Math.floor(Math.log10(span / 5));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => span / step <= 6) || 10 * power;
};
const logSplits = (low, high) => {
  const found = [];
  if (high / low < 20) {
    const step = niceStep(high - low);
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(Number(value.toPrecision(10)));
    return found;
  }
  const factors = high / low > 1e4 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) found.push(value);
    }
  return found;
};

class Chart {
  constructor(figure, spec) {
    Object.assign(this, { figure, spec, log: spec.log, hidden: spec.series.map((one) => !one.shown) });
    const { x, ys } = aligned(spec.series);
    Object.assign(this, { x, ys });
    this.full = [x[0], x[x.length - 1] > x[0] ? x[x.length - 1] : x[0] + 1];
    this.range = this.full;
    this.flags = new Map(spec.flags.map(([at, text]) => [at, text]));
    this.plot = figure.querySelector(".plot");
    this.makeControls();
    this.makeLegend();
    this.build();
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.fit()).observe(this.plot);
  }

  makeControls() {
    const button = element("button", { type: "button", "aria-pressed": String(this.log), class: "small" }, "log");
    button.setAttribute("aria-label", `Logarithmic axis: ${this.spec.title}`);
    button.addEventListener("click", () => {
      this.log = !this.log;
      button.setAttribute("aria-pressed", String(this.log));
      this.build();
    });
    if (!this.spec.signed) this.figure.querySelector(".controls").append(button);
  }

  makeLegend() {
    const legend = this.figure.querySelector(".legend");
    this.where = element("span", { class: "where" });
    this.outputs = this.spec.series.map((one, index) => {
      const mark = element("i", { class: one.draw, "aria-hidden": "true" });
      mark.style.setProperty("--c", `var(--s${one.color})`);
      const output = element("output", {});
      const button = element("button", { type: "button", "aria-pressed": String(one.shown) }, mark, one.label);
      button.addEventListener("click", () => {
        this.hidden[index] = !this.hidden[index];
        button.setAttribute("aria-pressed", String(!this.hidden[index]));
        this.show();
      });
      legend.append(element("span", {}, button, output));
      return output;
    });
    legend.append(this.where);
  }

  // Each series is drawn twice: as it is, and smoothed (then the first one is faint).
  data() {
    const positive = (values) => (this.log ? values.map((value) => (value != null && value <= 0 ? null : value)) : values);
    const made = [this.x];
    this.spec.series.forEach((one, index) => {
      const values = positive(this.ys[index]);
      const second = state.weight && one.smooth ? smoothed(values, state.weight) : null;
      made.push(values, second || new Array(values.length).fill(null));
    });
    return made;
  }

  build() {
    const { spec } = this;
    if (this.u) this.u.destroy();
    const narrow = this.plot.clientWidth < 520;
    const font = `${narrow ? 11 : 12}px system-ui, sans-serif`;
    const axis = { stroke: () => color("--muted"), font, grid: { stroke: () => color("--grid"), width: 1 }, ticks: { show: false } };
    const series = [{}];
    const several = spec.series.filter((one) => one.draw === "line" && one.shown).length > 1;
    spec.series.forEach((one, index) => {
      const faint = () => state.weight && one.smooth;
      const stroke = () => color(`--s${one.color}`) + (faint() ? "40" : several && one.draw === "line" ? "c8" : "");
      const plain = { show: !this.hidden[index], stroke, width: 1.25, spanGaps: false, dash: one.draw === "dashed" ? [6, 4] : undefined };
      if (one.draw === "dashed") plain.points = { show: false };
      if (one.draw === "points") Object.assign(plain, { paths: () => null, points: { show: true, size: 7, width: 1.5, stroke, fill: () => color("--card") } });
      series.push(plain, { show: !this.hidden[index] && one.smooth, stroke: () => color(`--s${one.color}`), width: 2, points: { show: false } });
    });
    const seriesOf = (label) => 1 + 2 * spec.series.findIndex((one) => one.label === label);
    this.u = new uPlot({
      width: this.plot.clientWidth || 600, height: this.height(),
      scales: {
        x: { time: spec.x === "time", range: (u, low, high) => [low, high] },
        y: { distr: this.log ? 3 : 1, range: (u, low, high) => this.yRange(u, low, high) },
      },
      axes: [
        { ...axis, space: narrow ? 70 : 90, size: spec.x === "time" ? 42 : 28, gap: 4,
          values: (u, values) => (spec.x === "time" ? days(values) : values.map((value) => (value % 1 ? "" : grouped(value)))) },
        { ...axis, size: narrow ? 46 : 58, gap: 4, splits: this.log ? (u, i, low, high) => logSplits(low, high) : undefined,
          filter: (u, splits) => splits, values: (u, values) => values.map((value) => tick(value, Math.abs(values[1] - values[0]) || 1, Math.max(...values.map(Math.abs)))) },
      ],
      series, bands: spec.bands.map(([high, low]) => ({ series: [seriesOf(high), seriesOf(low)], fill: () => color("--band") })),
      legend: { show: false }, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { drag: { x: true, y: false, dist: 4 }, sync: { key: spec.group, setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } },
      hooks: {
        drawAxes: [(u) => this.drawBehind(u)], draw: [(u) => this.drawMarks(u)],
        setScale: [(u, key) => { if (key === "x" && this.u === u) this.moved(u.scales.x.min, u.scales.x.max); }],
        setCursor: [(u) => this.read(u)],
      },
    }, this.data(), this.plot);
    this.moveTo(...this.range);
  }

  height() { return Math.round(Math.max(200, Math.min(this.spec.tall ? 400 : 240, innerHeight * (this.spec.tall ? 0.55 : 0.4)))); }

  fit() {
    const width = this.plot.clientWidth;
    if (width && !state.printing && Math.abs(width - this.u.width) > 1) this.u.setSize({ width, height: this.height() });
  }

  // Marks need room; outliers of a few steps must not flatten all others.
  yRange(u, low, high) {
    if (this.spec.robust && !state.outliers && low != null) {
      const [first, last] = u.series[0].idxs;
      const seen = [];
      this.spec.series.forEach((one, index) => {
        if (this.hidden[index]) return;
        for (let row = first; row <= last; row++) { const value = u.data[1 + 2 * index][row]; if (value != null) seen.push(value); }
      });
      if (seen.length > 20) [low, high] = typical(seen);
    }
    if (low == null || high == null) return this.log ? [1, 10] : [0, 1];
    if (this.log) return low === high ? [low / 2, high * 2] : [low * 0.98, high * 1.02];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  }

  show() {
    this.spec.series.forEach((one, index) => {
      this.u.setSeries(1 + 2 * index, { show: !this.hidden[index] });
      this.u.setSeries(2 + 2 * index, { show: !this.hidden[index] && one.smooth });
    });
  }

  refresh() { this.u.setData(this.data(), false); this.moveTo(...this.range); }
  moveTo(low, high) { this.u.setScale("x", { min: low, max: high }); }

  moved(low, high) {
    if (low == null || (low === this.range[0] && high === this.range[1])) return;
    this.range = [low, high];
    for (const other of charts)
      if (other !== this && other.spec.group === this.spec.group && (other.range[0] !== low || other.range[1] !== high)) other.moveTo(low, high);
    say(this.spec, low, high, low <= this.full[0] && high >= this.full[1]);
  }

  go(move) {
    const [first, last] = this.full;
    let [low, high] = this.range;
    const span = high - low;
    if (move === "reset") [low, high] = this.full;
    else if (move === "left" || move === "right") {
      const by = move === "left" ? -Math.min(0.2 * span, low - first) : Math.min(0.2 * span, last - high);
      [low, high] = [low + by, high + by];
    } else {
      const wide = Math.max(move === "in" ? span / 2 : span * 2, Math.min(4, last - first));
      const middle = (low + high) / 2;
      low = Math.max(first, Math.min(middle - wide / 2, last - wide));
      high = Math.min(last, low + wide);
    }
    this.moveTo(low, high);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.shiftKey && event.key.startsWith("Arrow")) { this.point(event.key === "ArrowLeft" ? -1 : 1); event.preventDefault(); return; }
    const move = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", _: "out", 0: "reset" }[event.key];
    if (!move) return;
    event.preventDefault();
    this.go(move);
  }

  // Moves the crosshair to the next step that has a place of its own.
  point(by) {
    const { u } = this;
    const [first, last] = u.series[0].idxs;
    const now = u.cursor.idx == null ? (by > 0 ? first - 1 : last + 1) : u.cursor.idx;
    const stride = Math.max(1, Math.round((last - first) / 200));
    const row = Math.max(first, Math.min(last, now + by * stride));
    u.setCursor({ left: u.valToPos(this.x[row], "x"), top: 10 });
    const said = this.outputs.map((output, index) => (this.hidden[index] || !output.textContent ? "" : `${this.spec.series[index].label} ${output.textContent}`));
    $("said").textContent = [this.where.textContent, ...said].filter(Boolean).join(", ");
  }

  read(u) {
    const row = u.cursor.idx;
    const at = row == null ? null : this.x[row];
    this.outputs.forEach((output, index) => {
      const value = row == null ? null : this.ys[index][row];
      output.textContent = value == null && at != null && this.flags.has(at) && this.spec.series[index].label === this.spec.flagged ? this.flags.get(at) : number(value);
    });
    this.where.textContent = at == null ? "" : place(this.spec.x, at) + this.nearby(u);
  }

  nearby(u) {
    const left = u.cursor.left;
    const near = this.spec.lines.map((line) => [Math.abs(u.valToPos(line.x, "x") - left), line]).filter(([far]) => far < 7).sort((a, b) => a[0] - b[0])[0];
    const value = u.posToVal(left, "x");
    const bar = this.spec.bars.find((one) => value >= one.from && value <= one.to);
    return [near && near[1].label, bar && bar.label].filter(Boolean).map((text) => ` · ${text}`).join("");
  }

  drawBehind(u) {
    if (!state.marks) return;
    const { ctx, bbox } = u;
    ctx.save();
    for (const { from, to, tone: name } of this.spec.spans) {
      const left = Math.max(bbox.left, u.valToPos(from, "x", true)), right = Math.min(bbox.left + bbox.width, u.valToPos(to, "x", true));
      if (right <= bbox.left || left >= bbox.left + bbox.width) continue;
      ctx.globalAlpha = 0.16;
      ctx.fillStyle = color(tone[name]);
      ctx.fillRect(left, bbox.top, Math.max(1, right - left), bbox.height);
    }
    ctx.restore();
  }

  drawMarks(u) {
    const { ctx, bbox } = u;
    const scale = devicePixelRatio || 1;
    const inside = (at) => at >= bbox.left - 1 && at <= bbox.left + bbox.width + 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (state.marks) {
      ctx.lineWidth = scale;
      for (const line of this.spec.lines) {
        const at = u.valToPos(line.x, "x", true);
        if (!inside(at)) continue;
        ctx.strokeStyle = color(tone[line.tone]);
        ctx.globalAlpha = line.strong ? 0.95 : 0.55;
        ctx.setLineDash(line.strong ? [] : [3 * scale, 4 * scale]);
        ctx.beginPath();
        ctx.moveTo(at, bbox.top);
        ctx.lineTo(at, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.setLineDash([]);
      ctx.globalAlpha = 1;
      for (const bar of this.spec.bars) {
        const left = u.valToPos(bar.from, "x", true), right = u.valToPos(bar.to, "x", true);
        ctx.fillStyle = color(tone[bar.tone]);
        ctx.globalAlpha = bar.tone === "plain" ? 0.55 : 1;
        ctx.fillRect(left, bbox.top + bbox.height - 9 * scale, Math.max(2 * scale, right - left - scale), 9 * scale);
      }
    }
    // What is not finite has no place on the axis: it is marked at the top.
    ctx.globalAlpha = 1;
    ctx.fillStyle = color("--bad");
    for (const at of this.flags.keys()) {
      const left = u.valToPos(at, "x", true);
      if (!inside(left)) continue;
      ctx.fillRect(left - scale / 2, bbox.top, scale, bbox.height);
      ctx.beginPath();
      ctx.moveTo(left - 5 * scale, bbox.top);
      ctx.lineTo(left + 5 * scale, bbox.top);
      ctx.lineTo(left, bbox.top + 8 * scale);
      ctx.fill();
    }
    ctx.restore();
  }
}

const say = (spec, low, high, whole) => {
  const words = spec.x === "time" ? `${utc(low)} to ${utc(high)} UTC` : `steps ${grouped(Math.ceil(low))} to ${grouped(Math.floor(high))}`;
  if (spec.group === "step" && $("range")) $("range").textContent = whole ? "all steps" : words;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { $("said").textContent = words; }, 300);
};

for (const figure of all("figure.chart")) charts.push(new Chart(figure, page.charts[Number(figure.dataset.chart)]));
