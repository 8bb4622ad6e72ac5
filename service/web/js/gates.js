// The Gates view: what GET /v1/gates tells, family by family. Fields that a later server adds are shown too.

import { blobUrl, get } from "./api.js";
import { h, percent, plural, table, words } from "./dom.js";

const SHOWN = ["family", "source", "version", "fraction", "regime", "audit", "audits"]; // have places of their own
const REGIME = ["gen_length", "steps", "guidance_scale", "tail_width", "temperature"];
const SHORT = { gen_length: "L", steps: "T", guidance_scale: "w", tail_width: "K", temperature: "temperature" };

export class GatesView {
  constructor(panel) {
    this.panel = panel;
    this.loaded = false;
  }

  async shown() {
    if (this.loaded) return;
    this.panel.replaceChildren(h("p", { class: "empty" }, "Loading."));
    try {
      const { data, refused = [] } = await get("/v1/gates");
      this.loaded = true;
      this.panel.replaceChildren(...draw(data), ...refused.map((reason) => h("p", { class: "note bad" }, `Not used: ${reason}`)));
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
    ...[...families].map(([family, entries]) => audits(family, entries.map(audit).filter(Boolean)))];
}

const familyOf = (gate) => gate.family ?? "any family";

const audits = (family, parts) => (parts.length ? h("section", { class: "family" }, h("h2", {}, family), parts) : "");

const isPlain = (item) => item !== null && ["string", "number", "boolean"].includes(typeof item) && !isImage(item);
const isImage = (item) => typeof item === "string" && /^\/.*\.(png|svg|webp)(\?.*)?$/.test(item);

function cut(gate) {
  if (gate.fraction !== undefined && gate.fraction !== null) return percent(gate.fraction);
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

/** Audit tables and plots wherever a gate carries them: lists of records become tables, image paths become images. */
function audit(gate) {
  const width = gate.regime?.tail_width;
  const title = `${gate.source}${width ? `, K ${width}` : ""}`;
  const parts = Object.entries(gate).filter(([name]) => name !== "regime").flatMap(([name, item]) => shown(`${title}: ${words(name)}`, item));
  return parts.length ? h("div", { class: "audit" }, parts) : null;
}

function shown(title, item) {
  if (isImage(item)) return [plot(title, item)];
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

function plot(title, path) {
  const image = h("img", { alt: title, loading: "lazy" });
  blobUrl(path).then((url) => { image.src = url; }, () => image.replaceWith(h("p", { class: "note" }, `${title}: no plot at ${path}`)));
  return h("figure", { class: "plot" }, image, h("figcaption", {}, title));
}
