// The frontier of an offline audit: success of every gate source against its forward evaluations, at one tail width.

import { h, svg, table } from "./dom.js";

const BOX = { width: 720, height: 340, left: 46, right: 150, top: 22, bottom: 42 };
const FIXED = /^fixed /;
const MARKS = { oracle: "star", constant: "square", raw: "down", policy: "up", full_cfg: "cross", value: "diamond", risk: "plus" };
const ROOM = 14; // px between names

const number = (item, digits = 2) => (item === null || item === undefined ? "" : item.toFixed(digits));
const signed = (gap) => (gap ? `${gap.value >= 0 ? "+" : "\u2212"}${number(Math.abs(gap.value))} [${number(gap.low)}, ${number(gap.high)}]` : "");
const kind = (point) => point.source.split(" ")[0];

/** One audit: a width to choose, the plot, every number as a table. */
export function drawAudit(family, audit) {
  const widths = [...new Set(audit.points.map((point) => point.tail_width))].sort((a, b) => a - b);
  const body = h("div", {});
  const show = (width) => body.replaceChildren(...report(family, audit.points, width));
  const choice = h("select", { onchange: (event) => show(Number(event.target.value)) }, widths.map((width) => h("option", { value: width }, `K = ${width}`)));
  show(widths[0]);
  return h("section", { class: "audit" },
    h("p", { class: "note" }, `Offline audit of gate ${audit.gate}: ${audit.prompts} prompts that trained nothing, ${audit.samples} fresh runs each, seed ${audit.seed}; perplexity by ${audit.judge}. Every prompt counts; where a gate falls back, the full CFG that it gets.`),
    h("label", { class: "inline" }, "Tail width ", choice), body);
}

function report(family, points, width) {
  const own = points.filter((point) => point.tail_width === width || (point.source === "full_cfg" && point.tail_width === 1));
  const named = own.filter((point) => !FIXED.test(point.source) && shownName(point, width));
  return [chart(family, own, width),
    table(`Gate sources of ${family} at tail width ${width}`, ["Source", "Success [95 %]", "Rows a text", "Less full CFG [95 %]", "At equal rows [95 %]", "Perplexity", "Repeats", "Handed off"],
      named.map((point) => [name(point), `${number(point.success)} [${number(point.low)}, ${number(point.high)}]`, number(point.forward_evaluations, 1), signed(point.against_full_cfg), signed(point.at_equal_rows), number(point.perplexity, 0), number(point.repeats), number(point.handed_off)]))];
}

const name = (point) => (point.source === "full_cfg" ? `full CFG, ${point.tail_width} a step` : point.source);
const shownName = (point, width) => point.source !== "full_cfg" || [1, width].includes(point.tail_width);

function chart(family, points, width) {
  const fixed = points.filter((point) => FIXED.test(point.source)).sort((a, b) => a.forward_evaluations - b.forward_evaluations);
  const values = points.filter((point) => /^value \S+$/.test(point.source)).sort((a, b) => a.forward_evaluations - b.forward_evaluations);
  const single = points.filter((point) => ["oracle", "constant", "raw", "policy", "full_cfg"].includes(point.source) || /^risk \S+$/.test(point.source));
  const drawn = [...fixed, ...values, ...single];
  const most = Math.max(...drawn.map((point) => point.forward_evaluations));
  const lowest = Math.min(0.9, Math.floor(10 * Math.min(...drawn.map((point) => point.success))) / 10);
  const inner = { width: BOX.width - BOX.left - BOX.right, height: BOX.height - BOX.top - BOX.bottom };
  const x = (rows) => BOX.left + (inner.width * rows) / most;
  const y = (success) => BOX.top + (inner.height * (1 - success)) / (1 - lowest);
  return h("figure", { class: "curve frontier" },
    svg("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", "aria-label": `Success against forward evaluations of ${family} at tail width ${width}; the table below has the numbers.` },
      axes(most, lowest, x, y),
      line(fixed, "base", x, y), line(values, "guided", x, y),
      single.map((point) => mark(point, x(point.forward_evaluations), y(point.success))),
      labels(single, x, y)),
    h("figcaption", {}, "Dashed line with circles: fixed cuts. Solid line with diamonds: the value gate by price. Up and to the left is better."));
}

function axes(most, lowest, x, y) {
  const steps = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * most));
  const levels = [];
  for (let level = 1; level > lowest - 1e-9; level -= 0.1) levels.push(level);
  return [levels.map((level) => [
    svg("line", { x1: x(0), x2: x(most), y1: y(level), y2: y(level), class: "rule" }),
    svg("text", { x: BOX.left - 8, y: y(level) + 4, class: "tick end" }, level.toFixed(1))]),
  steps.map((rows) => svg("text", { x: x(rows), y: BOX.height - BOX.bottom + 17, class: "tick middle" }, String(rows))),
  svg("text", { x: (x(0) + x(most)) / 2, y: BOX.height - 4, class: "tick middle" }, "forward evaluations a text"),
  svg("text", { x: BOX.left - 38, y: BOX.top - 9, class: "tick" }, "constraint met")];
}

function line(points, arm, x, y) {
  const places = points.map((point) => [x(point.forward_evaluations), y(point.success)]);
  const dot = ([cx, cy]) => (arm === "guided" ? svg("path", { d: shape("diamond", cx, cy, 4), class: `dot ${arm}` }) : svg("circle", { cx, cy, r: 3.2, class: `dot ${arm}` }));
  return svg("g", {}, svg("polyline", { points: places.map((place) => place.join(",")).join(" "), class: `line ${arm}` }), places.map(dot));
}

const mark = (point, cx, cy) => svg("path", { d: shape(MARKS[kind(point)], cx, cy, 6), class: "mark" }, svg("title", {}, `${name(point)}: ${number(point.success)} at ${number(point.forward_evaluations, 1)} rows`));

function shape(which, x, y, r) {
  const at = (points) => `M${points.map(([dx, dy]) => `${x + r * dx},${y + r * dy}`).join("L")}Z`;
  if (which === "square") return at([[-0.8, -0.8], [0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]]);
  if (which === "up") return at([[0, -1], [0.95, 0.8], [-0.95, 0.8]]);
  if (which === "down") return at([[0, 1], [0.95, -0.8], [-0.95, -0.8]]);
  if (which === "diamond") return at([[0, -1.2], [1, 0], [0, 1.2], [-1, 0]]);
  if (which === "plus") return at([[-0.3, -1], [0.3, -1], [0.3, -0.3], [1, -0.3], [1, 0.3], [0.3, 0.3], [0.3, 1], [-0.3, 1], [-0.3, 0.3], [-1, 0.3], [-1, -0.3], [-0.3, -0.3]]);
  if (which === "cross") return `M${x - r},${y - r}L${x + r},${y + r}M${x - r},${y + r}L${x + r},${y - r}`;
  return at(Array.from({ length: 10 }, (_, index) => [(index % 2 ? 0.5 : 1.25) * Math.sin((Math.PI * index) / 5), -(index % 2 ? 0.5 : 1.25) * Math.cos((Math.PI * index) / 5)]));
}

/** Names in a column at the right, each joined to its mark, apart where marks are close. */
function labels(points, x, y) {
  const ordered = [...points].sort((a, b) => b.success - a.success);
  const left = BOX.width - BOX.right + 22;
  let last = BOX.top - ROOM;
  return ordered.map((point) => {
    last = Math.max(last + ROOM, y(point.success));
    return [svg("line", { x1: x(point.forward_evaluations) + 7, x2: left - 4, y1: y(point.success), y2: last, class: "lead" }),
      svg("text", { x: left, y: last + 4, class: "label" }, name(point))];
  });
}
