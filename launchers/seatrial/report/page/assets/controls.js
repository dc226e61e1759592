// What acts on the whole page: toolbar, theme, filters, folds, printing. Last part of the page's script.
// ---- controls ----
const slider = $("smoothing");
if (slider) {
  slider.addEventListener("input", () => {
    state.weight = Number(slider.value);
    $("smoothing-value").textContent = state.weight.toFixed(2);
    charts.forEach((chart) => chart.refresh());
  });
  const first = charts.find((chart) => chart.spec.group === "step");
  for (const button of all("[data-go]")) button.addEventListener("click", () => first && first.go(button.dataset.go));
  const switches = { outliers: () => charts.forEach((chart) => chart.refresh()), marks: () => charts.forEach((chart) => chart.u.redraw()) };
  for (const [name, act] of Object.entries(switches))
    if ($(name)) $(name).addEventListener("change", () => { state[name] = $(name).checked; act(); });
}

const kept = { get: () => { try { return localStorage.getItem("seatrial-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("seatrial-theme", value); } catch { /* a browser may forbid it to files */ } } };
const themes = ["auto", "light", "dark"];
const redraw = () => charts.forEach((chart) => chart.u.redraw(false));
const setTheme = (name) => {
  if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
  $("theme").textContent = `Theme: ${name}`;
  redraw();
};
let theme = themes.includes(kept.get()) ? kept.get() : "auto";
setTheme(theme);
$("theme").addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % themes.length]; kept.set(theme); setTheme(theme); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

for (const box of all("[data-filters]")) {
  const rows = all("tbody tr", $(box.dataset.filters));
  const text = box.querySelector("input[type=search]"), only = box.querySelector("input[type=checkbox]"), count = box.querySelector("output");
  const act = () => {
    const wanted = text.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted) || (only !== null && only.checked && !row.classList.contains("changed"));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  box.addEventListener("input", act);
  act();
}

// A link to a part that is folded opens it.
const open = () => {
  const target = location.hash.length > 1 && $(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", open);
if (location.hash) open();

// Paper is white, has one width and nothing to unfold.
let before = null;
addEventListener("beforeprint", () => {
  before = { theme, closed: all("details:not([open])") };
  state.printing = true;
  before.closed.forEach((one) => { one.open = true; });
  setTheme("light");
  charts.forEach((chart) => chart.u.setSize({ width: 660, height: chart.spec.tall ? 300 : 200 }));
});
addEventListener("afterprint", () => {
  if (!before) return;
  state.printing = false;
  before.closed.forEach((one) => { one.open = false; });
  setTheme(before.theme);
  charts.forEach((chart) => chart.u.setSize({ width: chart.plot.clientWidth, height: chart.height() }));
});
window.seatrial = { charts };
