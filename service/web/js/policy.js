// The policy editor: a preset, and every knob that the server's schema knows, each shown where it is used.

import { field, plain } from "./fields.js";
import { h, uniqueId, words } from "./dom.js";

const FIRST = ["guidance_scale", "order", "tail_width", "tail_threshold"];
const UNGUIDED = ["guidance_scale", "guided_width", "plausibility", "on_fallback", "boost_threshold"]; // nothing to guide
const ALONE = { auto: ["guidance_scale", "budget_rows"] }; // presets that decide the rest themselves
const UNHANDED = ["on_fallback"]; // guidance that no gate ends
const UNBOOSTED = ["confidence", "random", "conditional"]; // orders that do not ask what guidance raises
const PRESET_NAMES = { base: "Base", full_cfg: "Full CFG" };
const NAMES = { guidance_scale: "Guidance w", tail_width: "Tail width K", order: "Commit order", on_fallback: "Without a gate" };

export const presetName = (preset) => PRESET_NAMES[preset] ?? words(preset).replace(/^./, (first) => first.toUpperCase());

/** { element, value(), set(policy) } for POST /generate's `policy`. */
export function policyEditor({ presets, sources, schema, definitions, reuse }) {
  const byName = new Map(presets.map((entry) => [entry.preset, entry]));
  const infos = new Map(sources.map((entry) => [entry.source, entry]));
  const group = uniqueId("preset");
  const radios = presets.map((entry) => h("input", { type: "radio", name: group, value: entry.preset, id: `${group}-${entry.preset}`, onchange: refresh }));
  const about = h("p", { class: "about" });
  const { knobs, objects } = split(schema, definitions, refresh);
  const gate = gateEditor(plain(schema.properties.gate, definitions).schema, infos, refresh);
  const more = h("details", { class: "more" }, h("summary", {}, "More policy settings"),
    h("div", { class: "grid" }, knobs.filter((knob) => !FIRST.includes(knob.name)).map((knob) => knob.element)));
  const [scale, order, ...tail] = FIRST.map((name) => knobs.find((knob) => knob.name === name)).filter(Boolean);
  const element = h("fieldset", { class: "section" }, h("legend", {}, "Policy"),
    h("div", { class: "segments", role: "radiogroup", "aria-label": "Preset", "data-param": "policy.preset" },
      radios.map((radio) => [radio, h("label", { for: radio.id }, presetName(radio.value))])),
    about,
    h("div", { class: "grid", "data-param": "policy" }, scale.element, order.element, gate.element, tail.map((knob) => knob.element)),
    objects.map((object) => object.element), more);

  const preset = () => byName.get(radios.find((radio) => radio.checked)?.value ?? presets[0].preset);

  function shownNames() {
    const { policy } = preset();
    const guided = policy.guidance_scale > 0;
    const gated = guided && policy.gate.source !== "never";
    const source = gate.source() ?? policy.gate.source;
    const hands = gated && source !== "never";
    const chosen = (name) => knobs.find((knob) => knob.name === name)?.read() ?? policy[name];
    const boosts = !UNBOOSTED.includes(chosen("order")) && chosen("guided_width") > 1;
    const alone = ALONE[preset().preset];
    const repaired = objects.some((object) => object.name === "repair" && object.on());
    return (name) => {
      if (alone) return alone.includes(name);
      if (name === "budget_rows") return repaired;
      if (!guided && UNGUIDED.includes(name)) return false;
      if (!gated && UNHANDED.includes(name)) return false;
      if (name === "on_fallback") return mayFallBack(source);
      if (name === "boost_threshold") return boosts;
      if (name.startsWith("tail_") && guided && !hands) return false;
      if (["tail_threshold", "tail_rule", "tail_schedule", "tail_mend"].includes(name)) return chosen("tail_width") > 1;
      if (name === "tail_reuse") return reuse;
      if (name === "tail_refresh") return reuse && Boolean(chosen("tail_reuse"));
      return name !== "gate" || gated;
    };
  }

  /** A drained gate has nothing to fall back from where the threshold is given: it is not looked up. */
  function mayFallBack(source) {
    if (source === "drained") return gate.read()?.threshold === undefined;
    return Boolean(infos.get(source)?.learned);
  }

  function refresh() {
    const { policy, description } = preset();
    about.textContent = description;
    gate.refresh(policy.gate.source);
    for (const object of objects) object.refresh(policy[object.name]);
    for (const knob of knobs) knob.setOpen(policy[knob.name] === null || policy[knob.name] === undefined ? "off" : words(String(policy[knob.name])));
    const shown = shownNames();
    for (const item of [...knobs, gate, ...objects]) item.element.hidden = !shown(item.name);
  }

  function value() {
    const shown = shownNames();
    const given = { preset: preset().preset };
    for (const item of [...knobs, gate, ...objects]) {
      const read = shown(item.name) ? item.read() : undefined;
      if (read !== undefined) given[item.name] = read;
    }
    return given;
  }

  function set(policy) {
    const name = byName.has(policy.preset) ? policy.preset : presets[0].preset;
    for (const radio of radios) radio.checked = radio.value === name;
    for (const knob of knobs) knob.write(policy[knob.name]);
    gate.write(policy.gate ?? {});
    for (const object of objects) object.write(policy[object.name]);
    refresh();
  }
  return { element, value, set };
}

/** Plain knobs, and knobs that are objects with fields of their own (such as repair). */
function split(schema, definitions, onchange) {
  const knobs = [];
  const objects = [];
  for (const [name, part] of Object.entries(schema.properties)) {
    if (name === "preset" || name === "gate") continue;
    const inner = plain(part, definitions).schema;
    if (inner.type === "object" && inner.properties) objects.push(objectEditor(name, inner, definitions, onchange));
    else knobs.push(field({ name, path: `policy.${name}`, schema: part, definitions, title: NAMES[name], onchange }));
  }
  return { knobs, objects };
}

function objectEditor(name, schema, definitions, onchange) {
  const path = `policy.${name}`;
  const fields = Object.entries(schema.properties).map(([key, part]) => field({ name: key, path: `${path}.${key}`, schema: part, definitions, onchange }));
  const id = uniqueId(name);
  const box = h("input", { type: "checkbox", id, onchange });
  const grid = h("div", { class: "grid" }, fields.map((item) => item.element));
  const title = words(name).replace(/^./, (first) => first.toUpperCase());
  const element = h("div", { class: "object", "data-param": path, "data-hint": schema.description },
    h("div", { class: "field check wide" }, box, h("label", { for: id }, title)), grid);
  let always = false;
  return { name, element, on: () => box.checked,
    refresh(preset) { // a preset that has one keeps it; its fields may still be set
      const before = always;
      always = Boolean(preset);
      box.disabled = always;
      if (always) box.checked = true;
      else if (before) box.checked = false;
      grid.hidden = !box.checked;
      for (const item of fields) item.setOpen(preset?.[item.name] === undefined || preset[item.name] === null ? "default" : words(String(preset[item.name])));
    },
    read() {
      if (!box.checked) return undefined;
      const given = fields.map((item) => [item.name, item.read()]).filter(([, value]) => value !== undefined);
      return given.length || !always ? Object.fromEntries(given) : undefined;
    },
    write(value) {
      box.checked = Boolean(value);
      for (const item of fields) item.write(value?.[item.name]);
    } };
}

function gateEditor(schema, infos, onchange) {
  const properties = schema.properties;
  const source = field({ name: "source", path: "policy.gate.source", schema: { enum: [...infos.keys()], description: "What picks the handoff step." }, title: "Gate", open: "default", onchange: () => choose() });
  const holder = h("div", { class: "gate-fields" });
  const element = h("div", { class: "gate", "data-param": "policy.gate" }, source.element, holder);
  let fields = [];

  function choose(values = {}) {
    const info = infos.get(source.read());
    fields = (info?.fields ?? []).map((name) => field({ name, path: `policy.gate.${name}`, schema: properties[name], title: `Gate ${words(name)}`,
      open: info.defaults[name] === undefined ? "default" : String(info.defaults[name]), onchange }));
    for (const item of fields) item.write(values[item.name] ?? (item.name === "fraction" ? 0.3 : undefined));
    holder.replaceChildren(...fields.map((item) => item.element));
    onchange();
  }

  return { name: "gate", element, source: source.read, refresh: (preset) => source.setOpen(`${words(preset)} (preset)`),
    read() {
      const chosen = source.read();
      if (!chosen) return undefined;
      return { source: chosen, ...Object.fromEntries(fields.map((item) => [item.name, item.read()]).filter(([, value]) => value !== undefined)) };
    },
    write(gate) {
      source.write(gate.source ?? "");
      choose(gate);
    } };
}
