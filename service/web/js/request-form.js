// The left panel: task, prompt, constraint, policy, canvas. Its value is the body of POST /generate.

import { constraintEditor } from "./constraint.js";
import { field } from "./fields.js";
import { byId, h, uniqueId } from "./dom.js";
import { policyEditor } from "./policy.js";
import { tasks } from "./tasks.js";

const SAMPLING = ["seed", "gen_length", "steps", "temperature"];
const MORE = ["block_length", "top_p", "confidence", "family", "deadline_s", "eos_fill", "suppress_eos", "defer_eos"];
const NAMES = { gen_length: "Length L", steps: "Steps T", eos_fill: "Fill after end of text", suppress_eos: "Suppress end of text", defer_eos: "End of text last", deadline_s: "Deadline, s", confidence: "Rank by" };
const BY_MODEL = ["gen_length", "temperature", "top_p"];
const OPEN = { seed: "random", family: "of the constraint", steps: "L", block_length: "model's", deadline_s: "server's" };

/** { element, value() } from what the server offers; `value` throws a SyntaxError where the constraint's JSON is none. */
export function requestForm({ document, constraints, policies, model, gates }) {
  const definitions = document.components.schemas;
  const { properties } = definitions.GenerateRequest;
  const sampling = [...SAMPLING, ...MORE].filter((name) => properties[name]).map((name) =>
    field({ name, path: name, schema: properties[name], definitions, title: NAMES[name], open: OPEN[name] ?? (BY_MODEL.includes(name) ? `${model.defaults[name]}` : undefined) }));
  const prompt = field({ name: "prompt", path: "prompt", schema: properties.prompt, definitions, required: true, wide: true });
  prompt.control.rows = 2;
  const template = field({ name: "template", path: "template", schema: properties.template, definitions, wide: true, title: "Template", open: "none: a free text" });
  template.control.rows = 2;
  const render = field({ name: "render_constraint", path: "render_constraint", schema: properties.render_constraint, title: "Add the constraint's instruction to the prompt" });
  const constraint = constraintEditor(constraints.data, { path: "constraint", optional: true });
  const policy = policyEditor({ presets: policies.data, sources: policies.gate_sources, schema: definitions.PolicyRequest, definitions, reuse: model.tail_reuse });
  const groups = tasks(constraints.data);
  const choices = groups.flatMap((group) => group.tasks);
  const id = uniqueId("task");
  const pick = h("select", { id, onchange: () => load(choices[Number(pick.value)]) },
    groups.map(({ group, tasks: entries }) => h("optgroup", { label: group }, entries.map((task) => h("option", { value: choices.indexOf(task) }, task.name)))));

  function load(task) {
    prompt.write(task.prompt);
    template.write(task.template);
    constraint.set(task.constraint);
    sampling.find((item) => item.name === "gen_length").write(task.gen_length);
    sampling.find((item) => item.name === "steps").write(undefined);
  }

  const of = (names) => sampling.filter((item) => names.includes(item.name)).map((item) => item.element);
  const element = h("div", {},
    h("fieldset", { class: "section" }, h("legend", {}, "Task"),
      h("div", { class: "field wide", "data-hint": "Fills in prompt, constraint and length" }, h("label", { for: id, class: "unseen" }, "Task"), pick),
      prompt.element, template.element, constraint.element, render.element),
    policy.element,
    h("fieldset", { class: "section" }, h("legend", {}, "Canvas"),
      h("div", { class: "grid four" }, of(SAMPLING)),
      h("details", { class: "more" }, h("summary", {}, "More sampling settings"), h("div", { class: "grid" }, of(MORE)))));

  render.write(true);
  policy.set(firstPolicy(gates, model));
  load(choices[0]);
  showHints(element);

  function value() {
    const body = { prompt: prompt.read() };
    const blanks = template.read();
    if (blanks) body.template = blanks;
    const given = constraint.value();
    if (given) body.constraint = given;
    if (given && !render.read()) body.render_constraint = false;
    body.policy = policy.value();
    for (const item of sampling) {
      const read = item.read();
      if (read !== undefined && read !== (properties[item.name].default ?? undefined)) body[item.name] = read;
    }
    return body;
  }
  return { element, value };
}

/** A learned gate where the server has one for its default guidance; else what a request without a policy gets. */
function firstPolicy(gates, { defaults }) {
  const fits = ({ source, regime }) => source === "value" && regime.temperature === defaults.temperature
    && ["order", "guidance_scale"].every((name) => regime[name] === defaults.policy[name]);
  const fitting = gates.data.filter(fits);
  const learned = fitting.find((gate) => gate.regime.tail_width > 1) ?? fitting[0];
  if (learned) return { preset: "handoff", gate: { source: "value" }, tail_width: learned.regime.tail_width };
  return { preset: defaults.policy.preset };
}

/** The line under the form says what the field in focus (or under the pointer) means. */
function showHints(root) {
  const say = (event) => {
    byId("hint").textContent = event.target.closest?.("[data-hint]")?.dataset.hint ?? "";
  };
  for (const name of ["focusin", "pointerover"]) root.addEventListener(name, say);
}
