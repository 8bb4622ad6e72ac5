// The switch curve: success under base and under guided continuation at each point of a run, with bands, and a*.

import { h, percent, svg, table, words } from "./dom.js";

const BOX = { width: 720, height: 320, left: 46, right: 92, top: 22, bottom: 40 };
const ARMS = [["qg", "guided", "guided q\u0067"], ["q0", "base", "base q\u2080"]];
const SAFE = 0.9; // q0 of a safe point; its gap is at most 0.1 (see MeasuredHorizon)

const number = (value) => value.toFixed(2);
const range = (interval) => `${number(interval.estimate)} [${number(interval.low)}, ${number(interval.high)}]`;

/** Everything about one result: the finding in words, the curve, the numbers. */
export function drawResult(result) {
  const { points, horizon } = result;
  return h("div", {},
    h("p", { class: "finding" }, finding(result)),
    points.length > 1 ? chart(points, horizon) : null,
    crossFitted(result.cross_fitted),
    table("Success from each point", ["Step", "Fraction", "Committed", "q\u2080 base [95 %]", "qg guided [95 %]", "V = qg \u2212 q\u2080 [95 %]"],
      points.map((point) => [String(point.step), number(point.fraction), percent(point.committed_fraction), range(point.q0), range(point.qg), range(point.value)])));
}

function finding({ horizon, handoff_fate: fate, points, forward_evaluations: rows }) {
  if (!horizon) return `From here the constraint is met in ${percent(points[0].q0.estimate)} of base and ${percent(points[0].qg.estimate)} of guided continuations: guidance is worth ${number(points[0].value.estimate)}. Measured with ${rows} forward evaluations.`;
  const where = horizon.censored
    ? "a* is censored: at no point of this run is it safe to let go of guidance."
    : `a* = ${number(horizon.fraction)}: from step ${horizon.step} on, with ${percent(horizon.committed_fraction)} of the canvas committed, base decoding keeps what guidance brings.`;
  return `${where}${fate ? ` Fate: ${words(fate)}.` : ""} Measured with ${rows} forward evaluations.`;
}

function crossFitted(found) {
  if (!found) return null;
  return h("p", { class: "figures" }, "Cross-fitted at a*: full CFG ", h("b", {}, number(found.full_cfg)), ", handoff ", h("b", {}, number(found.handoff)),
    `, difference ${number(found.difference)}; choosing and reading on the same rollouts would add ${number(found.optimism)}; ${percent(found.censored_share)} of ${found.splits} half-splits are censored.`);
}

function chart(points, horizon) {
  const last = Math.max(...points.map((point) => point.fraction));
  const inner = { width: BOX.width - BOX.left - BOX.right, height: BOX.height - BOX.top - BOX.bottom };
  const x = (fraction) => BOX.left + (inner.width * fraction) / (last || 1);
  const y = (share) => BOX.top + inner.height * (1 - share);
  const end = points[points.length - 1];
  return h("figure", { class: "curve" },
    svg("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", "aria-label": summary(points, horizon) },
      axes(points, x, y),
      horizon && !horizon.censored ? star(horizon, x, y) : null,
      ARMS.map(([arm, name]) => band(points, arm, name, x, y)),
      ARMS.map(([arm, name]) => line(points, arm, name, x, y)),
      labels(end, x, y)),
    h("figcaption", {}, "Bands are 95 % intervals. Guided: squares, solid line. Base: circles, dashed line."));
}

function summary(points, horizon) {
  const sentences = points.map((point) => `at ${number(point.fraction)} base ${number(point.q0.estimate)}, guided ${number(point.qg.estimate)}`);
  return `Switch curve. ${horizon?.censored === false ? `a* at ${number(horizon.fraction)}` : "No safe handoff"}. ${sentences.join("; ")}.`;
}

function axes(points, x, y) {
  const ends = [x(0), x(Math.max(...points.map((point) => point.fraction)))];
  const level = (share) => [
    svg("line", { x1: ends[0], x2: ends[1], y1: y(share), y2: y(share), class: share === SAFE ? "rule safe" : "rule" }),
    svg("text", { x: BOX.left - 8, y: y(share) + 4, class: "tick end" }, share.toFixed(share === SAFE ? 1 : 2).replace(/0$/, (zero) => (share === SAFE ? zero : "")))];
  return [[0, 0.25, 0.5, 0.75, SAFE, 1].map(level),
    points.map((point) => svg("text", { x: x(point.fraction), y: y(0) + 17, class: "tick middle" }, number(point.fraction).replace(/^0/, ""))),
    svg("text", { x: (ends[0] + ends[1]) / 2, y: BOX.height - 4, class: "tick middle" }, "share of the run that has been guided"),
    svg("text", { x: BOX.left - 38, y: BOX.top - 9, class: "tick" }, "constraint met")];
}

function star(horizon, x, y) {
  const at = x(horizon.fraction);
  return svg("g", { class: "star" },
    svg("line", { x1: at, x2: at, y1: y(1) - 6, y2: y(0) }),
    svg("text", { x: at + 5, y: y(0) - 7 }, `a* ${number(horizon.fraction)}`));
}

function band(points, arm, name, x, y) {
  const upper = points.map((point) => `${x(point.fraction)},${y(point[arm].high)}`);
  const lower = points.map((point) => `${x(point.fraction)},${y(point[arm].low)}`).reverse();
  return svg("polygon", { points: [...upper, ...lower].join(" "), class: `band ${name}` });
}

function line(points, arm, name, x, y) {
  const place = (point) => [x(point.fraction), y(point[arm].estimate)];
  const dot = ([cx, cy]) => (name === "guided" ? svg("rect", { x: cx - 4, y: cy - 4, width: 8, height: 8, class: `dot ${name}` }) : svg("circle", { cx, cy, r: 4.2, class: `dot ${name}` }));
  return svg("g", {}, svg("polyline", { points: points.map((point) => place(point).join(",")).join(" "), class: `line ${name}` }), points.map((point) => dot(place(point))));
}

/** Names at the right end of the lines, apart where the lines meet. */
function labels(end, x, y) {
  const [guided, base] = [y(end.qg.estimate), y(end.q0.estimate)];
  const room = 15;
  const push = Math.max(0, room - Math.abs(guided - base)) / 2;
  const [up, down] = guided <= base ? [guided - push, base + push] : [guided + push, base - push];
  return [["guided", up, "guided, qg"], ["base", down, "base, q\u2080"]].map(([name, at, text]) => svg("text", { x: x(end.fraction) + 12, y: at + 4, class: `label ${name}` }, text));
}
