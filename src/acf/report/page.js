"use strict";
const PRINT_WIDTH_PX = 680;
const BASE_FONT_PX = 15;

// Colours of the scheme in use: a custom property itself still reads "light-dark(...)".
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
function pageColour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
function textScale() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / BASE_FONT_PX;
}
function themed(template) {
  const copy = structuredClone(template);
  const [ink, quiet, rule, surface] = ["--ink", "--quiet", "--rule", "--surface"].map(pageColour);
  const family = getComputedStyle(document.body).fontFamily;
  Object.assign(copy.layout.font, { color: ink, family, size: 13 * textScale() });
  for (const axis of [copy.layout.xaxis, copy.layout.yaxis]) {
    Object.assign(axis, { gridcolor: rule, linecolor: rule, zerolinecolor: rule, tickfont: { color: quiet } });
    axis.title.font = { color: quiet, size: 12 * textScale() };
  }
  Object.assign(copy.layout.hoverlabel, { bgcolor: surface, bordercolor: rule, font: { color: ink, family } });
  Object.assign(copy.layout.modebar, { color: quiet, activecolor: ink });
  copy.data = { ...copy.data, bar: [{ marker: { line: { color: surface, width: 0.5 } } }] };
  return copy;
}

// A figure's data are read when it is drawn: a page of many runs has megabytes of them.
const drawings = Array.from(document.querySelectorAll("[data-plot]"), (element) => ({ element, spec: null }));

// A legend of many entries takes more lines on a narrow page; the figure grows by them, so that nothing overlaps.
function heightOf({ element, spec }) {
  const legend = element.querySelector(".legend .bg");
  const beyond = legend ? Math.max(0, legend.getBBox().height - spec.layout.meta.legend_px) : 0;
  return Math.round(spec.layout.height * textScale() + beyond);
}
function fit(drawing) {
  const height = heightOf(drawing);
  drawing.element.style.height = `${height}px`;
  if (Math.abs(height - drawing.element.layout.height) > 2) Plotly.relayout(drawing.element, { height });
}
function draw(drawing) {
  if (drawing.spec) return;
  drawing.spec = JSON.parse(document.getElementById(drawing.element.dataset.plot).textContent);
  const { element, spec } = drawing;
  const layout = { ...spec.layout, height: spec.layout.height * textScale(), template: themed(spec.layout.template) };
  layout.annotations = (layout.annotations ?? []).map((each) => ({ ...each, font: { ...each.font, size: 14 * textScale() } }));
  Plotly.newPlot(element, spec.data, layout, {
    responsive: true,
    displaylogo: false,
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  }).then(() => {
    fit(drawing);
    element.dataset.drawn = "";
  });
}
// A figure is drawn shortly before it is scrolled into view, so that a page of many runs opens at once.
const byElement = new Map(drawings.map((drawing) => [drawing.element, drawing]));
const nearView = new IntersectionObserver((entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    nearView.unobserve(target);
    draw(byElement.get(target));
  }
}, { rootMargin: "600px" });
for (const { element } of drawings) nearView.observe(element);

let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => drawings.filter((each) => each.element.layout).forEach(fit), 250);
});
function recolour() {
  for (const { element, spec } of drawings) {
    if (element.layout) Plotly.relayout(element, { template: themed(spec.layout.template) });
  }
}
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", recolour);
document.getElementById("scheme").addEventListener("click", () => {
  const root = document.documentElement;
  const chosen = root.style.colorScheme || (dark.matches ? "dark" : "light");
  root.style.colorScheme = chosen === "dark" ? "light" : "dark";
  recolour();
});

addEventListener("beforeprint", () => {
  for (const drawing of drawings) {
    draw(drawing);
    Plotly.relayout(drawing.element, { width: PRINT_WIDTH_PX, autosize: false });
  }
});
addEventListener("afterprint", () => {
  for (const drawing of drawings) Plotly.relayout(drawing.element, { width: null, autosize: true }).then(() => fit(drawing));
});

// Tables: sort by a heading, keep the rows that hold a text, save what is shown as CSV.
function cellValue(cell) {
  return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent.trim();
}
function compareCells(first, second) {
  if (typeof first !== typeof second) return typeof first === "number" ? -1 : 1; // absent figures come last
  return typeof first === "number" ? first - second : first.localeCompare(second, undefined, { numeric: true });
}
function sortBy(table, heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const keyed = Array.from(table.tBodies[0].rows, (row) => [cellValue(row.cells[heading.cellIndex]), row]);
  keyed.sort(([a], [b]) => (descending && typeof a === typeof b ? -1 : 1) * compareCells(a, b));
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}
function quoted(value) {
  const text = String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
function csvOf(table) {
  const keys = Array.from(table.tHead.rows[0].cells, (cell) => cell.dataset.key);
  const shown = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
  const lines = shown.map((row) => Array.from(row.cells, (cell) => quoted(cellValue(cell))).join(","));
  return [keys.join(","), ...lines].join("\n") + "\n";
}
function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
for (const box of document.querySelectorAll("[data-table]")) {
  const table = box.querySelector("table");
  const [filter, count, csv] = ["input", "output", "[data-csv]"].map((selector) => box.querySelector(selector));
  for (const heading of table.tHead.rows[0].cells) {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, heading));
  }
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    const rows = Array.from(table.tBodies[0].rows);
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    count.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
  });
  csv.addEventListener("click", () => save(csvOf(table), `${box.dataset.table}.csv`));
}
