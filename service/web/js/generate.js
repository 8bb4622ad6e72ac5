// The Generate view: one run, or full CFG and the chosen policy side by side on the same seed.

import { clearErrors, markError } from "./fields.js";
import { announce, byId, h, percent } from "./dom.js";
import { presetName } from "./policy.js";
import { Run } from "./run.js";
import { RunView } from "./run-view.js";

const PACES = [["0", "as it comes"], ["90", "brisk"], ["300", "slow"], ["900", "very slow"]];
const MAX_SEED = 2 ** 32;

export class GenerateView {
  constructor(form, panel) {
    this.form = form;
    this.panel = panel;
    this.views = [];
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.go = h("button", { type: "submit", class: "primary" }, "Generate");
    this.halt = h("button", { type: "button", disabled: true, onclick: () => this.stop() }, "Stop");
    this.compare = h("input", { type: "checkbox", id: "compare" });
    this.pace = h("select", { id: "pace" }, PACES.map(([value, text]) => h("option", { value }, text)));
    this.pace.value = calm ? "0" : "90";
    this.buttons = [this.go, this.halt,
      h("span", { class: "switch" }, this.compare, h("label", { for: "compare" }, "beside full CFG")),
      h("span", { class: "switch pace" }, h("label", { for: "pace" }, "Pace"), this.pace)];
    this.summary = h("p", { class: "summary", hidden: true });
    this.runs = h("div", { class: "runs" });
    panel.append(legend(), this.summary, this.runs, empty());
  }

  start() {
    const controls = byId("controls");
    clearErrors(controls);
    showFormError("");
    this.stop();
    let body;
    try {
      body = this.form.value();
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      showProblem(error);
      return;
    }
    body.seed ??= Math.floor(Math.random() * MAX_SEED);
    this.open(this.compare.checked ? [["Full CFG", fullCfg(body)], [nameOf(body.policy), body]] : [[nameOf(body.policy), body]]);
  }

  open(plans) {
    const runs = [];
    const columns = () => Math.max(1, ...runs.map((run) => run.steps ?? 0), ...runs.map((run) => run.stepsIn()));
    this.views = plans.map(([title, body]) => {
      const run = new Run(body, (changed) => { this.changed(changed); });
      runs.push(run);
      return new RunView(title, run, { pace: () => Number(this.pace.value), columns, onend: () => this.ended() });
    });
    this.summary.hidden = true;
    this.panel.querySelector(".empty")?.remove();
    this.runs.classList.toggle("pair", this.views.length > 1);
    this.runs.replaceChildren(...this.views.map((view) => view.element));
    this.halt.disabled = false;
    announce(`Generating: ${plans.map(([title]) => title).join(" and ")}.`);
    for (const view of this.views) {
      view.advance();
      view.run.start();
    }
    if (matchMedia("(max-width: 899px)").matches) byId("stage").scrollIntoView({ block: "start" });
  }

  changed(run) {
    const view = this.views.find((item) => item.run === run);
    if (!view) return; // a run that has been replaced
    if (run.error) this.refused(run.error);
    view.advance();
  }

  refused(error) {
    showProblem(error);
    if (error.status === 401) byId("key-button").click();
    this.halt.disabled = true;
  }

  ended() {
    if (!this.views.every((view) => view.ended)) return;
    this.halt.disabled = true;
    const verdicts = this.views.filter((view) => view.run.sample).map((view) => `${view.title}: ${verdict(view.run.sample)}`);
    announce(verdicts.length ? verdicts.join(" ") : "Generation ended without a text.");
    this.compareSummary();
  }

  compareSummary() {
    const [full, ours] = this.views.map((view) => view.run.sample);
    if (!full || !ours) return;
    const a = full.forward_evaluations.total;
    const b = ours.forward_evaluations.total;
    const change = b <= a ? `${percent(1 - b / a)} fewer` : `${percent(b / a - 1)} more`;
    this.summary.replaceChildren(h("b", {}, `${b} against ${a} forward evaluations, ${change}.`), ` Same prompt, same seed ${ours.seed}. ${outcome(full, ours)}`);
    this.summary.hidden = false;
  }

  stop() {
    for (const view of this.views) if (view.run.running) view.run.stop();
    this.halt.disabled = true;
  }
}

/** Says what is wrong at the field at fault, else under the form; a SyntaxError is that of the constraint's JSON. */
export function showProblem(error, roots = [byId("controls")]) {
  const [param, message] = error instanceof SyntaxError ? ["constraint", `This is not JSON: ${error.message}`] : [error.param, error.message];
  if (!(param && roots.some((root) => markError(root, param, message)))) showFormError(message);
}

export function showFormError(text) {
  byId("form-error").textContent = text;
  byId("form-error").hidden = !text;
}

const verdict = (sample) => `${sample.satisfied === null ? "done" : sample.satisfied ? "constraint met" : "constraint not met"}, ${sample.forward_evaluations.total} of ${sample.forward_evaluations.full_cfg_equivalent} forward evaluations. ${sample.text}`;

function outcome(full, ours) {
  if (full.satisfied === null) return "";
  if (full.satisfied && ours.satisfied) return "Both meet the constraint.";
  if (!full.satisfied && !ours.satisfied) return "Neither meets the constraint.";
  return full.satisfied ? "Only full CFG meets the constraint." : "Only the handed-off run meets the constraint.";
}

/** The same request under full CFG: everything but what only another policy uses. */
function fullCfg(body) {
  const { guidance_scale, order } = body.policy;
  const policy = { preset: "full_cfg" };
  if (guidance_scale !== undefined && guidance_scale !== 0) policy.guidance_scale = guidance_scale;
  if (order !== undefined) policy.order = order;
  return { ...body, policy };
}

function nameOf(policy) {
  const parts = [policy.gate?.source, policy.tail_width > 1 ? `K = ${policy.tail_width}` : null].filter(Boolean);
  return presetName(policy.preset) + (parts.length ? ` (${parts.join(", ")})` : "");
}

function legend() {
  const entry = (name, text) => h("span", { class: `cell sample ${name}`, style: { "--sure": "0.8" } }, h("span", { class: "token" }, text));
  return h("p", { class: "canvas-legend", "aria-label": "Legend" },
    entry("guided", "guided"), h("span", {}, "2 forward evaluations a step"), entry("base", "base"), h("span", {}, "1 a step"),
    entry("mask", "\u00a0"), h("span", {}, "masked"), entry("mask reopened", "reopened"), h("span", {}, "masked again"));
}

const empty = () => h("p", { class: "empty" }, "Press Generate (Ctrl Enter) and watch the canvas fill: guidance costs two forward evaluations a step and ends at the handoff.");
