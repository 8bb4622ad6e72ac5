// The Committor view: the switch curve of a prompt (or the worth of guidance in one state), measured by rollouts.

import { call, get } from "./api.js";
import { clearErrors, field } from "./fields.js";
import { announce, byId, h, plural } from "./dom.js";
import { showFormError, showProblem } from "./generate.js";
import { drawResult } from "./curve.js";

const POLL_MS = 400;
const NOT_OURS = ["deadline_s"]; // a job has no deadline
const GUIDANCE = ["preset", "guidance_scale", "guided_width", "order", "boost_threshold", "tail_width", "tail_threshold"]; // the gate is what is measured
const DONE = ["succeeded", "failed", "cancelled"];
const MODES = [["horizon", "Switch curve and a*"], ["fraction", "One state: part of a guided run"], ["text", "One state: text with [MASK]"]];

export class CommittorView {
  constructor(form, panel, definitions) {
    this.form = form;
    this.panel = panel;
    this.job = null;
    this.turn = 0;
    const schema = definitions.CommittorRequest;
    if (!schema) {
      panel.append(h("p", { class: "empty" }, "This server does not measure committors."));
      return;
    }
    const state = definitions.StateRequest.properties;
    this.rollouts = field({ name: "rollouts", path: "rollouts", schema: schema.properties.rollouts, open: "24" });
    this.rollouts.write(12);
    this.fraction = field({ name: "fraction", path: "state.fraction", schema: state.fraction, required: true });
    this.fraction.write(0.3);
    this.text = field({ name: "text", path: "state.text", schema: { ...state.text, maxLength: 200 }, required: true, wide: true });
    this.text.write("a dog [MASK] [MASK] the beach");
    this.mode = h("select", { id: "committor-mode", onchange: () => this.refresh() }, MODES.map(([value, name]) => h("option", { value }, name)));
    this.go = h("button", { type: "submit", class: "primary" }, "Measure");
    this.halt = h("button", { type: "button", disabled: true, onclick: () => this.stop() }, "Cancel");
    this.buttons = [this.go, this.halt];
    this.progress = h("progress", { max: 1, value: 0, "aria-label": "Continuations done", hidden: true });
    this.status = h("p", { class: "figures" });
    this.result = h("div", { class: "report" });
    this.recent = h("div", {});
    panel.append(
      h("p", { class: "lead" }, "How likely is the constraint met in the end, if decoding goes on with or without guidance from here? Prompt, constraint, policy and canvas are those on the left."),
      h("div", { class: "grid measure" },
        h("div", { class: "field" }, h("label", { for: "committor-mode" }, "Measure"), this.mode),
        this.rollouts.element, this.fraction.element, this.text.element),
      this.progress, this.status, this.result, this.recent);
    this.refresh();
  }

  refresh() {
    this.fraction.element.hidden = this.mode.value !== "fraction";
    this.text.element.hidden = this.mode.value !== "text";
  }

  shown() {
    if (this.recent) this.list().catch(() => this.recent.replaceChildren());
  }

  body() {
    const body = this.form.value();
    for (const name of NOT_OURS) delete body[name];
    body.policy = Object.fromEntries(Object.entries(body.policy).filter(([name]) => GUIDANCE.includes(name)));
    const rollouts = this.rollouts.read();
    if (rollouts !== undefined) body.rollouts = rollouts;
    if (this.mode.value === "horizon") body.horizon = true;
    else body.state = { [this.mode.value]: this[this.mode.value].read() };
    return body;
  }

  async start() {
    if (!this.buttons) return;
    for (const root of [byId("controls"), this.panel]) clearErrors(root);
    showFormError("");
    const turn = (this.turn += 1); // an older measurement that is still polled stops showing
    this.result.replaceChildren();
    this.go.disabled = true;
    announce("Measuring.");
    try {
      const { data } = await call("/committor", { method: "POST", body: this.body() });
      await this.follow(data, turn);
    } catch (error) {
      this.refused(error);
    }
    this.go.disabled = false;
  }

  /** Poll until the job ends; a small request has ended already. */
  async follow(job, turn) {
    let current = job;
    for (;;) {
      if (turn !== this.turn) return;
      this.draw(current);
      if (DONE.includes(current.status)) break;
      await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
      current = await get(`/committor/${encodeURIComponent(current.id)}`);
    }
    this.shown();
  }

  draw(job) {
    this.job = job;
    const { rollouts, rollouts_total: all, forward_evaluations: rows } = job.progress;
    const running = !DONE.includes(job.status);
    this.halt.disabled = !running;
    this.progress.hidden = !running;
    this.progress.value = all ? rollouts / all : 0;
    this.status.replaceChildren(h("b", {}, job.status), `, ${rollouts} of ${plural(all, "continuation")}, ${plural(rows, "forward evaluation")}, seed ${job.request.seed}`);
    if (running) return;
    if (job.error) this.result.replaceChildren(h("p", { class: "note bad" }, job.error));
    if (job.result) this.result.replaceChildren(drawResult(job.result));
    announce(job.result ? this.result.querySelector(".finding")?.textContent ?? "Measured." : `The measurement ${job.status}.`);
  }

  refused(error) {
    this.halt.disabled = true;
    this.progress.hidden = true;
    showProblem(error, [this.panel, byId("controls")]);
  }

  async stop() {
    if (!this.job || DONE.includes(this.job.status)) return;
    try {
      await call(`/committor/${encodeURIComponent(this.job.id)}`, { method: "DELETE" });
    } catch (error) {
      showFormError(error.message);
    }
  }

  async list() {
    const { data } = await get("/committor");
    if (!data.length) {
      this.recent.replaceChildren();
      return;
    }
    const open = (job) => h("button", { type: "button", class: "quiet small", onclick: async () => {
      const turn = (this.turn += 1);
      await this.follow(await get(`/committor/${encodeURIComponent(job.id)}`), turn).catch((error) => showFormError(error.message));
    } }, "Show");
    this.recent.replaceChildren(h("h2", {}, "Measured before"),
      h("ul", { class: "jobs" }, data.slice(0, 8).map((job) => h("li", {}, open(job), " ", h("span", { class: "code" }, describe(job.request)), " ", h("span", { class: "detail" }, `${job.status}, ${new Date(1000 * job.created).toLocaleTimeString()}`)))));
  }
}

function describe(request) {
  const { type, ...rest } = request.constraint ?? {};
  const what = rest.keywords?.join(", ") ?? rest.words?.join(", ") ?? "";
  return `${type} ${what} ${request.horizon ? "switch curve" : "one state"}, ${request.rollouts ?? 24} an arm`.replace(/ +/g, " ");
}
