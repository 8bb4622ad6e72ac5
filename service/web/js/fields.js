// Form fields drawn from JSON Schema, so that the page offers what the server takes, with the server's own words.

import { h, uniqueId, words } from "./dom.js";

/** The schema without its null alternative and references: { schema, nullable }. */
export function plain(schema, definitions = {}) {
  const resolve = (part) => (part.$ref ? { ...definitions[part.$ref.split("/").pop()], ...part, $ref: undefined } : part);
  const found = resolve(schema);
  if (found.anyOf) {
    const others = found.anyOf.filter((part) => part.type !== "null");
    return { schema: { ...resolve(others[0]), description: found.description, default: found.default },
             nullable: others.length < found.anyOf.length };
  }
  if (Array.isArray(found.type)) {
    const others = found.type.filter((type) => type !== "null");
    return { schema: { ...found, type: others[0] }, nullable: others.length < found.type.length };
  }
  return { schema: found, nullable: false };
}

const label = (name) => words(name).replace(/^./, (first) => first.toUpperCase());
const list = (text) => text.split(/[,\n]/).map((part) => part.trim()).filter(Boolean);

/** Controls by kind: each returns { control, read, write }; `read` gives undefined where the field is left open. */
const KINDS = {
  choice(schema, { open }) {
    const control = h("select", {}, open === null ? [] : h("option", { value: "" }, open),
      schema.enum.map((name) => h("option", { value: name }, words(name))));
    return { control, read: () => control.value || undefined, write: (value) => { control.value = value ?? ""; } };
  },
  boolean(schema, { open }) {
    if (open === null) {
      const control = h("input", { type: "checkbox" });
      return { control, read: () => control.checked, write: (value) => { control.checked = Boolean(value); } };
    }
    const control = h("select", {}, [["", open], ["true", "yes"], ["false", "no"]].map(([value, text]) => h("option", { value }, text)));
    return { control, read: () => (control.value ? control.value === "true" : undefined),
             write: (value) => { control.value = value === undefined || value === null ? "" : String(value); } };
  },
  number(schema, { open }) {
    const control = h("input", { type: "number", step: schema.type === "integer" ? 1 : "any", placeholder: open,
      min: schema.minimum ?? schema.exclusiveMinimum, max: schema.maximum, inputmode: schema.type === "integer" ? "numeric" : "decimal" });
    // What a browser cannot read as a number is sent as text: the server says what is wrong with it.
    return { control, read: () => (control.validity.badInput ? "not a number" : control.value === "" ? undefined : Number(control.value)),
             write: (value) => { control.value = value ?? ""; } };
  },
  list(schema, { open }) {
    const control = h("input", { type: "text", placeholder: open ?? "separated by commas", spellcheck: "false", autocomplete: "off" });
    return { control, read: () => (control.value.trim() || open === null ? list(control.value) : undefined),
             write: (value) => { control.value = (value ?? []).join(", "); } };
  },
  map(schema, { open }) {
    const control = h("textarea", { rows: 2, placeholder: "word: form, form", spellcheck: "false" });
    const read = () => {
      const lines = control.value.split("\n").filter((line) => line.trim()).map((line) => line.split(":"));
      return lines.length ? Object.fromEntries(lines.map(([key, rest]) => [key.trim(), list(rest ?? "")])) : undefined;
    };
    return { control, read, write: (value) => {
      control.value = Object.entries(value ?? {}).map(([key, forms]) => `${key}: ${forms.join(", ")}`).join("\n");
    } };
  },
  text(schema, { open }) {
    const long = (schema.maxLength ?? 0) > 1000;
    const control = long ? h("textarea", { rows: 3, placeholder: open }) : h("input", { type: "text", placeholder: open, autocomplete: "off" });
    return { control, read: () => (control.value === "" && open !== null ? undefined : control.value), write: (value) => { control.value = value ?? ""; } };
  },
  json(schema, { open }) {
    const control = h("textarea", { rows: 3, placeholder: open ?? "JSON", spellcheck: "false", class: "code" });
    const read = () => {
      if (!control.value.trim()) return undefined;
      try {
        return JSON.parse(control.value);
      } catch {
        return control.value; // the server names the type that it wants
      }
    };
    return { control, read, write: (value) => { control.value = value === undefined || value === null ? "" : JSON.stringify(value); } };
  },
};

function kindOf(schema) {
  if (schema.enum) return "choice";
  if (schema.type === "boolean") return "boolean";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "array" && plain(schema.items ?? {}).schema.type === "string") return "list";
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return "map";
  return schema.type === "string" || !schema.type ? "text" : "json";
}

/**
 * One labelled field of `schema`: { element, control, name, read, write, setOpen }. `path` is the API's dotted path, where
 * errors find it; `open` says what leaving it empty means (null: it may not be left open).
 */
export function field({ name, path, schema, definitions, required = false, open, title, wide = false, onchange = () => {} }) {
  const { schema: inner, nullable } = plain(schema, definitions);
  const kind = kindOf(inner);
  const optional = kind === "boolean" ? nullable : !required;
  const shown = optional ? (open ?? (inner.default === undefined || inner.default === null ? "default" : String(inner.default))) : null;
  const { control, read, write } = KINDS[kind](inner, { open: shown });
  const id = uniqueId("field");
  control.id = id;
  control.name = path;
  control.addEventListener("input", onchange);
  const help = inner.description ? h("span", { id: `${id}-help`, class: "unseen" }, inner.description) : null;
  if (help) control.setAttribute("aria-describedby", help.id);
  const span = wide || ["list", "map", "json"].includes(kind) || control.tagName === "TEXTAREA";
  const text = h("label", { for: id }, title ?? label(name));
  const checkbox = control.type === "checkbox";
  const element = h("div", { class: `field${span ? " wide" : ""}${checkbox ? " check" : ""}`, "data-param": path, "data-hint": inner.description },
    checkbox ? [control, text] : [text, control], help);
  return { element, control, name, read, write, setOpen: (word) => { setOpen(control, word); } };
}

function setOpen(control, word) {
  if (control.tagName === "SELECT") {
    if (control.options[0]?.value === "") control.options[0].textContent = word;
  } else control.placeholder = word;
}

/** Marks the field at `param` (or the nearest one around it) with the message; false where none is shown. */
export function markError(root, param, message) {
  const parts = [...root.querySelectorAll("[data-param]")].filter((element) => element.getClientRects().length || element.closest("details:not([open])"));
  const holds = (path) => param === path || param.startsWith(`${path}.`) || param.startsWith(`${path}[`);
  const [best] = parts.filter((element) => holds(element.dataset.param) && !element.closest("[hidden]"))
    .sort((a, b) => b.dataset.param.length - a.dataset.param.length);
  if (!best) return false;
  for (let around = best.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
  const control = best.querySelector("input, select, textarea, button");
  const error = h("p", { class: "field-error", id: uniqueId("error"), role: "alert" }, message);
  best.append(error);
  best.classList.add("wrong");
  control.setAttribute("aria-invalid", "true");
  control.dataset.describedby = control.getAttribute("aria-describedby") ?? "";
  control.setAttribute("aria-describedby", `${error.id} ${control.dataset.describedby}`.trim());
  control.focus();
  return true;
}

export function clearErrors(root) {
  for (const error of root.querySelectorAll(".field-error")) error.remove();
  for (const element of root.querySelectorAll(".wrong")) element.classList.remove("wrong");
  for (const control of root.querySelectorAll("[aria-invalid]")) {
    control.removeAttribute("aria-invalid");
    if (control.dataset.describedby) control.setAttribute("aria-describedby", control.dataset.describedby);
    else control.removeAttribute("aria-describedby");
  }
}
