// The constraint editor: fields of the chosen type, or JSON. A composition holds editors of its own.

import { clearErrors, field, markError, plain } from "./fields.js";
import { h, uniqueId, words } from "./dom.js";

/** { element, value(), set(constraint) }; `value` throws a SyntaxError where the JSON is none. */
export function constraintEditor(types, { path, optional = false, without = [] }) {
  const known = new Map(types.filter((entry) => !without.includes(entry.type)).map((entry) => [entry.type, entry]));
  const id = uniqueId("constraint");
  const select = h("select", { id, onchange: () => show(known.get(select.value)?.example ?? null) },
    optional ? h("option", { value: "" }, "none") : null, [...known.keys()].map((type) => h("option", { value: type }, words(type))));
  const json = h("textarea", { class: "code", rows: 7, spellcheck: "false", id: `${id}-json`, "aria-label": "Constraint as JSON" });
  const body = h("div", { class: "grid" });
  const raw = h("div", { class: "field wide", hidden: true }, json);
  const mode = h("button", { type: "button", class: "quiet small", "aria-pressed": "false", onclick: toggle }, "JSON");
  const element = h("div", { class: "constraint", "data-param": path },
    h("div", { class: "field wide", "data-hint": "What the text must satisfy" },
      h("div", { class: "label-row" }, h("label", { for: id }, path === "constraint" ? "Constraint" : "Type"), mode), select),
    body, raw);
  let fields = [];

  function show(constraint) {
    const entry = constraint && known.get(constraint.type);
    select.value = entry ? constraint.type : "";
    fields = entry ? fieldsOf(entry, constraint) : [];
    body.replaceChildren(...fields.map((item) => item.element));
    json.value = constraint ? JSON.stringify(constraint, null, 1) : "";
  }

  function fieldsOf(entry, constraint) {
    const { properties, required = [] } = entry.schema;
    return Object.entries(properties).filter(([name]) => name !== "type").map(([name, schema]) => {
      const inside = `${path}.${name}`;
      const nested = plain(schema).schema;
      const item = nested.type === "array" && plain(nested.items ?? {}).schema.type === "object"
        ? parts(types, inside, entry.type)
        : field({ name, path: inside, schema, required: required.includes(name) });
      item.name = name;
      item.write(constraint[name] ?? (nested.type === "boolean" ? nested.default : undefined));
      return item;
    });
  }

  const fromFields = () => {
    if (!select.value) return null;
    const filled = fields.map((item) => [item.name, item.read()]).filter(([, value]) => value !== undefined);
    return { type: select.value, ...Object.fromEntries(filled) };
  };
  const asJson = () => !raw.hidden;
  const fromJson = () => (json.value.trim() ? JSON.parse(json.value) : null);

  function toggle() {
    if (asJson()) {
      let constraint;
      clearErrors(element);
      try {
        constraint = fromJson();
      } catch (problem) {
        markError(element, path, `This is not JSON: ${problem.message}`);
        return;
      }
      if (constraint && !known.has(constraint.type)) {
        markError(element, path, `"type" must be one of: ${[...known.keys()].join(", ")}`);
        return;
      }
      show(constraint);
    } else json.value = JSON.stringify(fromFields(), null, 1);
    raw.hidden = !raw.hidden;
    body.hidden = !raw.hidden;
    select.disabled = asJson();
    mode.setAttribute("aria-pressed", String(asJson()));
  }

  return { element, value: () => (asJson() ? fromJson() : fromFields()), set: show };
}

/** A list of constraints: editors with buttons to add and remove them. */
function parts(types, path, outer) {
  let editors = [];
  const holder = h("div", { class: "parts" });
  const add = h("button", { type: "button", class: "quiet small", onclick: () => push(types[0].example) }, "Add a constraint");
  const element = h("fieldset", { class: "field wide nested", "data-param": path }, h("legend", {}, words(outer).replace(/^./, (first) => first.toUpperCase())), holder, add);

  function push(constraint) {
    const editor = constraintEditor(types, { path: `${path}[${editors.length}]`, without: [outer] });
    const remove = h("button", { type: "button", class: "quiet small", onclick: () => drop(editor) }, "Remove");
    editor.part = h("div", { class: "part" }, editor.element, remove);
    editors.push(editor);
    holder.append(editor.part);
    editor.set(constraint);
  }

  function drop(editor) {
    const rest = editors.filter((other) => other !== editor).map((other) => other.value());
    write(rest); // drawn anew: the paths of those behind it move
    add.focus();
  }

  function write(constraints) {
    editors = [];
    holder.replaceChildren();
    for (const constraint of constraints ?? []) push(constraint);
  }
  return { element, write, read: () => editors.map((editor) => editor.value()) };
}
