// The Gates view: what GET /v1/gates tells, family by family. Fields that a later server adds are shown too.

import { get } from "./api.js";
import { h, percent, plural, table, words } from "./dom.js";
import { drawAudit } from "./frontier.js";

const SHOWN = ["family", "source", "version", "fraction", "threshold", "regime"]; // have places of their own
const REGIME = ["gen_length", "steps", "guidance_scale", "tail_width", "temperature", "order"];
const SHORT = { gen_length: "L", steps: "T", guidance_scale: "w", tail_width: "K", temperature: "temperature", order: "" };

export class GatesView {
  constructor(panel) {
    this.panel = panel;
    this.loaded = false;
  }

  async shown() {
    if (this.loaded) return;
    this.panel.replaceChildren(h("p", { class: "empty" }, "Loading."));
    try {
      const { data, refused = [], pooled } = await get("/v1/gates");
      this.loaded = true;
      this.panel.replaceChildren(...draw(data), elsewhere(pooled), ...refused.map((reason) => h("p", { class: "note bad" }, `Not used: ${reason}`)));
    } catch (error) {
      this.panel.replaceChildren(h("p", { class: "note bad" }, error.message));
    }
  }
}

function draw(gates) {
  if (!gates.length) return [h("p", { class: "empty" }, "This server holds no gates: the sources fraction, drained and never still work, the others fall back.")];
  const families = Map.groupBy(gates, familyOf);
  const extras = [...new Set(gates.flatMap((gate) => Object.keys(gate).filter((name) => !SHOWN.includes(name) && isPlain(gate[name]))))];
  const rows = [...families.values()].flat().map((gate) => [familyOf(gate), gate.source, cut(gate), setting(gate.regime), ...extras.map((name) => value(gate[name])), String(gate.version ?? "")]);
  return [
    h("p", { class: "lead" }, `${plural(gates.length, "gate")} for ${plural(families.size, "family").replace("familys", "families")}. Each serves the setting that it was measured in, and no other.`),
    table("Gates of this server", ["Family", "Source", "Hands off at", "Setting", ...extras.map(words), "Version"], rows),
    ...[...families].filter(([, entries]) => entries[0].family !== null).map(([family]) => details(family))];
}

/** What a request gets that no gate fits. */
function elsewhere(pooled) {
  const note = (text) => h("p", { class: "note" }, text);
  if (!pooled) return note("This model's pooled drained threshold was not measured: a request that no gate fits is guided for half of its steps or more, on evidence 'none'.");
  if (pooled.threshold === null) return note("No drained threshold keeps this model's loss small over all settings: a request that no gate fits is guided to its end.");
  const loss = pooled.loss === null ? "" : ` Loss of success ${value(pooled.loss)} [${pooled.loss_interval_95.map(value).join(", ")}] on ${plural(pooled.pairs, "pair")}, at ${percent(pooled.rows_of_full_cfg)} of full CFG's rows.`;
  const start = pooled.earliest ? `, not before ${percent(pooled.earliest)} of its steps` : "";
  const withheld = Object.keys(pooled.withheld);
  const kept = withheld.length ? ` Families that it harms keep full CFG: ${withheld.join(", ")}.` : "";
  return note(`A request that no gate fits hands off when drained below ${value(pooled.threshold)}${start}: one threshold, measured over many settings together.${loss}${kept}`);
}

/** A family's evidence and audits, asked for when it is opened. */
function details(family) {
  const body = h("div", { class: "audits" });
  const load = async (event) => {
    if (!event.target.open || body.childElementCount) return;
    body.replaceChildren(h("p", { class: "empty" }, "Loading."));
    try {
      const path = `/v1/gates/${encodeURIComponent(family)}`;
      const [found, online] = await Promise.all([get(path), get(`${path}/audit`)]);
      body.replaceChildren(...found.audits.map((item) => drawAudit(family, item)), ...drained(family, found.gates), ...shadow(family, online.data), ...found.gates.filter(tells).map(evidence));
    } catch (error) {
      body.replaceChildren(h("p", { class: "note bad" }, error.message));
    }
  };
  return h("details", { class: "family", ontoggle: load }, h("summary", {}, h("h2", {}, family)), body);
}

/** What calibrated thresholds lose on prompts that had no say in them. */
function drained(family, entries) {
  const audited = entries.filter((gate) => gate.source === "drained" && gate.evidence?.audit);
  if (!audited.length) return [];
  const rows = audited.map(({ regime, threshold, evidence: { audit } }) => [words(regime.order ?? ""), value(regime.tail_width), String(threshold), value(audit.prompts),
    share(audit.success), share(audit.full_cfg.success), `${value(audit.loss)} [${audit.loss_interval_95.map(value).join(", ")}]`,
    percent(audit.rows / audit.full_cfg.rows), `${whole(audit.perplexity)} (${whole(audit.full_cfg.perplexity)})`]);
  return [h("h3", {}, "Drained thresholds on audit prompts"),
    h("p", { class: "note" }, "Prompts that chose neither threshold nor width. The loss is full CFG's success in confidence order less the threshold's own, with its 95 % interval; perplexity of full CFG in brackets."),
    table(`Drained thresholds of ${family} on audit prompts`, ["Order", "K", "Threshold", "Prompts", "Success", "Full CFG", "Loss", "Rows, of full CFG", "Perplexity"], rows)];
}

const whole = (item) => (item === null ? "" : item.toFixed(0));

const share = (item) => (item === null ? "" : item.toFixed(2));

/** What the shadow audit of live requests says. */
function shadow(family, audits) {
  if (!audits.length) return [];
  const rows = audits.map((item) => [`${item.source}, K ${item.tail_width}`, item.state, String(item.pairs),
    item.gap.estimate === null ? "no pairs yet" : `${item.gap.estimate.toFixed(3)} [${item.gap.low.toFixed(3)}, ${item.gap.high.toFixed(3)}]`,
    share(item.handoff_share), item.needed === null ? "" : String(item.needed), String(item.dropped), item.version]);
  return [h("h3", {}, "Shadow audit of live requests"),
    h("p", { class: "note" }, `A share of the requests that hand off is continued under full CFG from the same state. The gap is success of the handoff less that; a gate is certified when its interval lies above \u2212${audits[0].margin}, and suspended when it lies below.`),
    table(`Shadow audit of ${family}`, ["Gate", "State", "Pairs", `Gap [${percent(audits[0].confidence)}, at any time]`, "Handoff share", "Further pairs to certify", "Dropped", "Version"], rows)];
}

/** Whether an entry has evidence that no other of its family shows: each cut, each ladder, and one of the learned. */
function tells(gate, index, entries) {
  return gate.margins?.length > 0 || entries.findIndex((other) => JSON.stringify(other.evidence) === JSON.stringify(gate.evidence)) === index;
}

const familyOf = (gate) => gate.family ?? "any family";

const isPlain = (item) => item !== null && ["string", "number", "boolean"].includes(typeof item);

function cut(gate) {
  if (gate.fraction !== undefined && gate.fraction !== null) return percent(gate.fraction);
  if (gate.source === "drained") return gate.threshold === null ? "never: it does not drain" : `drained below ${value(gate.threshold)}`;
  return gate.source === "constant" ? "never" : "decides live";
}

function setting(regime) {
  const known = REGIME.filter((name) => regime?.[name] !== undefined && regime[name] !== null);
  const rest = Object.entries(regime ?? {}).filter(([name]) => !REGIME.includes(name));
  return h("span", { title: rest.map(([name, item]) => `${words(name)}: ${value(item)}`).join("\n") }, known.map((name) => `${SHORT[name]} ${value(regime[name])}`).join("  "));
}

function value(item) {
  if (item === null || item === undefined) return "";
  if (typeof item === "number") return Number.isInteger(item) ? String(item) : item.toFixed(3);
  if (Array.isArray(item)) return item.map(value).join(" to ");
  return typeof item === "object" ? JSON.stringify(item) : String(item);
}

/** What one gate is made of and promises: lists of records become tables. */
function evidence(gate) {
  const width = gate.regime?.tail_width;
  const title = `${gate.source}${width ? `, K ${width}` : ""}`;
  const parts = gate.margins?.length ? shown(`${title}: certified margins`, gate.margins) : shown(`${title}: evidence`, gate.evidence ?? {});
  return h("div", { class: "audit" }, parts);
}

function shown(title, item) {
  if (Array.isArray(item) && item.length && typeof item[0] === "object") {
    const heads = [...new Set(item.flatMap((row) => Object.keys(row)))];
    return [h("h3", {}, title), table(title, heads.map(words), item.map((row) => heads.map((head) => value(row[head]))))];
  }
  if (item && typeof item === "object" && !Array.isArray(item)) {
    const facts = Object.entries(item).filter(([, part]) => isPlain(part) || (Array.isArray(part) && typeof part[0] !== "object"));
    const deeper = Object.entries(item).flatMap(([name, part]) => (isPlain(part) ? [] : shown(`${title}, ${words(name)}`, part)));
    return [facts.length ? [h("h3", {}, title), h("dl", { class: "facts" }, facts.map(([name, part]) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, value(part)))))] : [], ...deeper];
  }
  return [];
}
