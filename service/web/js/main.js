// Boot: what the server offers, the views, theme and key.

import { apiKey, get, setApiKey } from "./api.js";
import { CommittorView } from "./committor.js";
import { announce, byId, h } from "./dom.js";
import { GatesView } from "./gates.js";
import { GenerateView } from "./generate.js";
import { requestForm } from "./request-form.js";

const THEMES = ["system", "light", "dark"];
const TABS = ["generate", "committor", "gates"];
const RETRY_MS = 2000;

function theme() {
  const button = byId("theme-button");
  const current = () => document.documentElement.dataset.theme ?? "system";
  const label = () => { button.textContent = `Theme: ${current()}`; };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    localStorage.setItem("astargate-theme", next);
    label();
  });
  label();
}

function keyDialog(reload) {
  const [dialog, button, input] = [byId("key-dialog"), byId("key-button"), byId("key")];
  const label = () => { button.textContent = apiKey() ? "Key: set" : "Key"; };
  button.addEventListener("click", () => {
    input.value = apiKey() ?? "";
    dialog.returnValue = "";
    dialog.showModal();
  });
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "save") setApiKey(input.value.trim());
    if (dialog.returnValue === "forget") setApiKey(null);
    label();
    if (dialog.returnValue === "save" || dialog.returnValue === "forget") reload();
  });
  label();
}

function tabs(onshow) {
  const all = TABS.map((name) => byId(`tab-${name}`));
  const show = (name, focus = false) => {
    for (const tab of all) {
      const chosen = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !chosen;
      if (chosen && focus) tab.focus();
    }
    history.replaceState(null, "", `#${name}`);
    document.body.dataset.view = name;
    onshow(name);
  };
  for (const [index, tab] of all.entries()) {
    tab.addEventListener("click", () => show(TABS[index]));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: TABS.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(TABS[(to + TABS.length) % TABS.length], true);
    });
  }
  const wanted = location.hash.slice(1);
  show(TABS.includes(wanted) ? wanted : "generate");
}

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

/** Everything that the page is drawn from; waits for a model that is still loading. */
async function offer() {
  for (;;) {
    try {
      const paths = ["/openapi.json", "/v1/constraints", "/v1/policies", "/v1/models", "/v1/gates"];
      const [document, constraints, policies, models, gates] = await Promise.all(paths.map((path) => get(path)));
      notice("");
      return { document, constraints, policies, model: models.data[0], gates };
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        notice(`${error.message}. Enter one with the Key button.`);
        return null;
      }
      notice(error.status === 503 ? "The model is still loading." : `${error.message}; trying again.`);
      await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
    }
  }
}

async function boot() {
  const offered = await offer();
  if (!offered) return;
  const { model } = offered;
  byId("model").replaceChildren(h("b", {}, model.id), ` ${model.hash.slice(0, 8)} ${model.device} ${model.precision ?? model.dtype}`);
  const form = requestForm(offered);
  byId("fields").replaceChildren(form.element);
  for (const name of TABS) byId(`panel-${name}`).replaceChildren();
  const generate = new GenerateView(form, byId("panel-generate"));
  const committor = new CommittorView(form, byId("panel-committor"), offered.document.components.schemas);
  const gates = new GatesView(byId("panel-gates"));
  const views = { generate, committor, gates };
  const current = () => views[document.body.dataset.view];
  tabs((name) => {
    byId("buttons").replaceChildren(...(views[name].buttons ?? []));
    byId("controls").hidden = !views[name].buttons;
    views[name].shown?.();
  });
  byId("controls").onsubmit = (event) => { event.preventDefault(); current().start?.(); };
  document.onkeydown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && current().buttons) { event.preventDefault(); current().start(); }
    if (event.key === "Escape" && !byId("key-dialog").open) current().stop?.();
  };
  document.body.dataset.ready = "true";
  announce("Ready.");
}

theme();
keyDialog(boot);
await boot();
