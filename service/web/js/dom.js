// Elements from plain calls: h("p", { class: "note" }, "text", child). Text is always text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export const byId = (id) => document.getElementById(id);

let serial = 0;
export const uniqueId = (prefix) => `${prefix}-${(serial += 1)}`;

/** Says one thing to screen readers, politely; what is said next replaces it. */
export function announce(text) {
  byId("live").textContent = text;
}

export const percent = (share) => `${Math.round(100 * share)}\u202f%`;
export const words = (name) => name.replaceAll("_", " ");
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** A table with a caption for screen readers; `rows` are arrays, the first cell of each is its header. */
export function table(caption, heads, rows) {
  return h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, column) =>
        column === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell)))))));
}
