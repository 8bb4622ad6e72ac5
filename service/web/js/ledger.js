// Forward evaluations, drawn: a strip with one column a step (two blocks guided, one base), and a bar against full CFG.

import { h, percent, svg } from "./dom.js";
import { ROWS } from "./run.js";

/** The strip of the first `shown` frames of `run`, before the outline of full CFG; `columns` wide. */
export function strip(run, shown, columns) {
  const steps = run.frames.filter((frame) => frame.kind === "step");
  const seen = run.stepsIn(shown);
  const width = Math.max(columns, steps.length, 1);
  const gap = width > 128 ? 0 : 0.14;
  const block = (column, row, name) => svg("rect", { x: column + gap / 2, y: 1 - row + 0.06, width: 1 - gap, height: 0.88, class: name });
  const ghosts = Array.from({ length: run.steps ?? 0 }, (_, column) => [0, 1].map((row) => block(column, row, "ghost")));
  const spent = steps.map((frame, column) => Array.from({ length: ROWS[frame.phase] ?? 0 }, (_, row) =>
    block(column, row, `${frame.phase}${column < seen ? "" : " ahead"}`)));
  return h("div", { class: "strip" },
    svg("svg", { viewBox: `0 0 ${width} 2`, preserveAspectRatio: "none", "aria-hidden": "true" }, ghosts, spent),
    marks(run, shown).map((mark) => h("span", { class: `mark-at ${mark.kind}`, style: { left: `${(100 * mark.column) / width}%` } },
      h("span", {}, mark.text))));
}

/** Where guidance ended and where positions were reopened, as columns. */
function marks(run, shown) {
  const found = [];
  let column = 0;
  for (const frame of run.frames.slice(0, shown)) {
    if (frame.kind === "step") column += 1;
    else if (frame.kind === "handoff") found.push({ kind: "handoff", column, text: "handoff" });
    else if (frame.kind === "reopen") found.push({ kind: "reopen", column, text: "reopen" });
  }
  return found;
}

const NAMES = { guided: "guided", base: "base", repair: "repair", other: "probe and audit", skipped: "skipped at end of text" };

/** Rows by what they were spent on: the final ledger where there is one, else what the frames tell. */
function parts(run, shown) {
  const ledger = run.sample?.forward_evaluations;
  if (!ledger || shown < run.frames.length) {
    const rows = { guided: 0, base: 0 };
    for (const frame of run.frames.slice(0, shown)) if (frame.kind === "step") rows[frame.phase] += ROWS[frame.phase];
    return rows;
  }
  const other = ledger.probe + ledger.audit;
  const guided = Math.max(0, 2 * ledger.unconditional - ledger.repair - other);
  return { guided, base: Math.max(0, ledger.total - guided - ledger.repair - other), repair: ledger.repair, other, skipped: ledger.skipped_by_eos };
}

/** A bar of `parts` on the scale of full CFG, with its legend. */
export function bar(run, shown) {
  const full = run.fullCfg;
  const rows = parts(run, shown);
  const spent = Object.entries(rows).filter(([name]) => name !== "skipped").reduce((sum, [, count]) => sum + count, 0);
  const scale = Math.max(full ?? 0, spent, 1);
  const segments = Object.entries(rows).filter(([, count]) => count > 0);
  const share = full ? `, ${percent(spent / full)}` : "";
  const text = full ? `${spent} of full CFG's ${full} forward evaluations` : `${spent} forward evaluations`;
  return h("div", { class: "cost" },
    h("div", { class: "bar", role: "img", "aria-label": text + share },
      segments.map(([name, count]) => h("span", { class: `part ${name}`, style: { width: `${(100 * count) / scale}%` } })),
      full && spent > full ? h("span", { class: "limit", style: { left: `${(100 * full) / scale}%` } }) : null),
    h("p", { class: "legend" },
      segments.map(([name, count]) => h("span", { class: `key ${name}` }, `${NAMES[name]} ${count}`)),
      full && full - spent - (rows.skipped ?? 0) !== 0 && run.sample && shown === run.frames.length
        ? h("span", { class: `key ${spent > full ? "over" : "saved"}` }, spent > full ? `${spent - full} more than full CFG` : `saved ${full - spent - (rows.skipped ?? 0)}`) : null));
}
