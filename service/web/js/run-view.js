// One run on the page: canvas, strip of steps with a scrubber, cost, text, checks, details.

import { h, percent, plural, table, uniqueId, words } from "./dom.js";
import { bar, strip } from "./ledger.js";
import { display } from "./run.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class RunView {
  /** `pace()` gives the shortest time between two frames in ms; `onend` is called once everything has been shown. */
  constructor(title, run, { pace, columns, onend }) {
    Object.assign(this, { title, run, pace, columns, onend, shown: 0, ended: false, timer: null, following: true });
    const id = uniqueId("run");
    this.state = h("span", { class: "state" });
    this.canvas = h("div", { class: "canvas", role: "img" });
    this.strip = h("div", {});
    this.slider = h("input", { type: "range", min: 0, max: 1, value: 0, class: "scrub", "aria-label": `${title}: step shown`, oninput: () => this.scrub(run.framesUpTo(Number(this.slider.value))) });
    this.replay = h("button", { type: "button", class: "quiet small", onclick: () => this.play() }, "Replay");
    this.cost = h("div", {});
    this.figures = h("p", { class: "figures" });
    this.verdict = h("div", { class: "verdict" });
    this.details = h("div", { class: "run-details" });
    this.element = h("article", { class: "run", "aria-labelledby": id },
      h("header", {}, h("h2", { id }, title), this.replay, this.state),
      this.canvas,
      h("div", { class: "timeline" }, this.strip, this.slider),
      this.figures, this.cost, this.verdict, this.details);
    this.draw();
  }

  /** Shows the next frame, and goes on at its pace: for when frames have come, or the run has ended. */
  advance() {
    if (this.timer || !this.following) return;
    if (this.shown < this.run.frames.length) {
      this.shown += 1;
      this.draw();
      this.timer = setTimeout(() => { this.timer = null; this.advance(); }, this.pace());
    } else if (!this.run.running && !this.ended) {
      this.ended = true;
      this.draw();
      this.finish();
      this.onend(this);
    }
  }

  scrub(shown) {
    clearTimeout(this.timer);
    this.timer = null;
    this.shown = shown;
    this.following = this.run.running && shown === this.run.frames.length;
    if (!this.following && !this.ended && !this.run.running) this.settle();
    this.draw();
  }

  /** The user moved away while the last frames were playing: the end is shown at once. */
  settle() {
    this.ended = true;
    this.finish();
    this.onend(this);
  }

  play() {
    this.scrub(0);
    this.following = true;
    this.advance();
  }

  draw() {
    const { run, shown } = this;
    const cells = run.canvas(shown, !(this.ended && shown === run.frames.length));
    this.canvas.replaceChildren(...cells.map((cell, position) => drawCell(cell, position)));
    const done = cells.filter((cell) => cell && !cell.reopened && !cell.fixed).length;
    this.canvas.setAttribute("aria-label", `Canvas, ${done} of ${plural(cells.filter((cell) => !cell?.fixed).length, "position")} committed: ${cells.map((cell) => (cell?.piece ? display(cell.piece).text : "masked")).join(" ")}`);
    this.strip.replaceChildren(strip(run, shown, this.columns()));
    const frame = run.frames[shown - 1];
    const step = run.stepsIn(shown);
    this.slider.max = Math.max(this.columns(), run.stepsIn());
    this.slider.value = step;
    this.slider.setAttribute("aria-valuetext", frame ? `step ${step}, ${frame.kind === "step" ? frame.phase : frame.kind}` : "before the first step");
    this.cost.replaceChildren(bar(run, shown));
    this.state.textContent = this.status(frame, step);
    this.state.dataset.phase = this.ended && shown === run.frames.length ? "done" : frame?.phase ?? "";
    this.replay.hidden = !this.ended || run.frames.length === 0;
    this.slider.disabled = run.frames.length === 0;
  }

  status(frame, step) {
    const { run } = this;
    if (this.ended && this.shown === run.frames.length) return run.error ? "failed" : run.stopped ? "stopped" : `${plural(step, "step")} in ${run.seconds.toFixed(2)} s`;
    if (!frame) return run.running ? "waiting" : "";
    return `${frame.phase ?? frame.kind}, step ${step}${run.steps ? ` of ${run.steps}` : ""}`;
  }

  finish() {
    const { run } = this;
    if (run.error) this.verdict.replaceChildren(h("p", { class: "note bad" }, run.error.message));
    if (!run.sample) return;
    this.figures.replaceChildren(...figures(run));
    this.verdict.replaceChildren(
      h("p", { class: "text" }, run.sample.text || "(an empty text)"),
      checks(run.sample),
      ...notes(run.sample).map((text) => h("p", { class: "note" }, text)));
    this.details.replaceChildren(stepTable(this.title, run), request(run), response(run));
  }
}

function drawCell(cell, position) {
  if (!cell) return h("span", { class: "cell mask" }, "");
  if (cell.fixed) return h("span", { class: "cell fixed", title: `position ${position}: text of the template` }, display(cell.piece).text);
  if (cell.reopened) return h("span", { class: `cell mask reopened${cell.fresh ? " fresh" : ""}`, title: `position ${position}: reopened, was ${cell.before}` }, h("s", {}, display(cell.before).text));
  const { text, special } = display(cell.piece);
  const size = text.length > 11 ? " longest" : text.length > 8 ? " long" : "";
  const name = `cell ${cell.phase}${cell.fresh && !still.matches ? " fresh" : ""}${special ? " special" : ""}${size}${cell.again ? " again" : ""}`;
  const about = cell.filled ? "filled at end of text" : `${cell.phase}, confidence ${cell.confidence.toFixed(2)}`;
  return h("span", { class: name, title: `position ${position}, step ${cell.step}: ${JSON.stringify(cell.piece)} (${about})`, style: { "--sure": String(cell.confidence ?? 1) } },
    h("span", { class: "when" }, String(cell.step)), h("span", { class: "token" }, text));
}

function figures(run) {
  const { gate, forward_evaluations: rows, seed } = run.sample;
  const ended = { handoff: `handoff at step ${gate.handoff_step} of ${run.steps} (${percent(gate.handoff_fraction ?? 0)})`, full_cfg: "guided to the end", base: "never guided" };
  const facts = [
    h("b", {}, `${rows.total} of ${rows.full_cfg_equivalent}`), " forward evaluations ", h("b", {}, `(${percent(rows.total / rows.full_cfg_equivalent)})`),
    ", ", ended[gate.decision] ?? words(gate.decision), `, seed ${seed}`];
  if (gate.version && gate.source !== "never") facts.push(`, gate ${gate.source} ${gate.version}`);
  return facts;
}

function checks(sample) {
  if (sample.satisfied === null) return h("p", { class: "note" }, "No constraint: nothing to check.");
  const line = (met, name, detail) => h("li", { class: met ? "met" : "unmet" }, h("span", { class: "tick", "aria-hidden": "true" }), h("span", { class: "unseen" }, met ? "met: " : "not met: "), h("span", {}, name), detail ? h("span", { class: "detail" }, detail) : null);
  return h("ul", { class: "checks", "aria-label": sample.satisfied ? "Constraint met" : "Constraint not met" },
    sample.checks.map((check) => line(check.satisfied, check.name, check.detail)));
}

function notes(sample) {
  const found = [];
  if (sample.gate.fallback_reason) found.push(`No gate of its own served this request: ${sample.gate.fallback_reason}.`);
  found.push(evidence(sample.gate));
  if (sample.gate.handoff_fate) found.push(`Gate's prediction: ${words(sample.gate.handoff_fate)}${sample.gate.predicted_horizon === null ? "" : `, horizon ${percent(sample.gate.predicted_horizon)}`}.`);
  if (sample.approximate) found.push("Approximate: base steps reused keys and values.");
  if (sample.repair) found.push(`Repair: ${plural(sample.repair.rounds, "round")}, ${plural(sample.repair.reopened, "position")} reopened, ${sample.repair.recovered ? "recovered" : "not recovered"}.`);
  if (sample.repair?.anchor_reason) found.push(`Repair began at the end of the run: ${sample.repair.anchor_reason}.`);
  return found;
}

const KNOWN = { audited: "the gate was measured in this very setting", pooled: "the gate was measured over many settings of this model together", none: "nothing was measured for this setting" };

function evidence(gate) {
  const lost = gate.measured_loss;
  const signed = (share) => `${share < 0 ? "" : "+"}${share.toFixed(2)}`;
  const loss = lost ? ` Loss of success ${signed(lost.loss)} [${signed(lost.low)}, ${signed(lost.high)}] on ${plural(lost.pairs, "pair")}.` : "";
  return `Evidence: ${gate.evidence}, ${KNOWN[gate.evidence]}.${loss}`;
}

function later(summary, build) {
  const holder = h("div", {});
  return h("details", { ontoggle: () => { if (!holder.firstChild) holder.append(build()); } }, h("summary", {}, summary), holder);
}

function stepTable(title, run) {
  const cells = (frame) => frame.kind === "step"
    ? [frame.phase, frame.positions.map((position, slot) => `${position}:${display(frame.pieces[slot]).text}`).join("  ") || "none", frame.confidence.map((value) => value.toFixed(2)).join("  ")]
    : [frame.kind, frame.kind === "reopen" ? frame.positions.join("  ") : `before step ${frame.step + 1}`, ""];
  let count = 0;
  return later("Steps", () => table(`Steps of ${title}`, ["Step", "Phase", "Positions and tokens", "Confidence"],
    run.frames.map((frame) => [frame.kind === "step" ? String((count += 1)) : `after ${count}`, ...cells(frame)])));
}

function request(run) {
  return later("Request", () => {
    const { stream, n, ...body } = run.body;
    const quoted = JSON.stringify(body, null, 1).replaceAll("'", "'\\''");
    const code = `curl -s ${location.origin}/generate -H 'content-type: application/json' -d '${quoted}'`;
    const copy = h("button", { type: "button", class: "quiet small", onclick: async () => { await navigator.clipboard.writeText(code); copy.textContent = "Copied"; } }, "Copy");
    return h("div", {}, copy, h("pre", { tabindex: "0", "aria-label": "Request as curl" }, code));
  });
}

const response = (run) => later("Response", () => h("pre", { tabindex: "0", "aria-label": "Response as JSON" }, JSON.stringify(run.answer ?? run.sample, null, 1)));
