// One generation as it streams in: frames (steps, handoff, reopened positions), then the judged sample.

import { ApiError, events } from "./api.js";

export const ROWS = { guided: 2, base: 1 };

/** A sample on its way. `frames` grow; `sample`, `answer` and `error` come at the end; `onchange` is called each time. */
export class Run {
  constructor(body, onchange) {
    this.body = { ...body, n: 1, stream: true };
    this.onchange = onchange;
    this.frames = [];
    this.sample = null;
    this.answer = null;
    this.error = null;
    this.stopped = false;
    this.abort = new AbortController();
    this.seconds = null;
  }

  get running() {
    return this.seconds === null;
  }

  async start() {
    const began = performance.now();
    try {
      for await (const { event, data } of events("/generate", this.body, this.abort.signal)) {
        this.take(event, data);
        this.onchange(this);
      }
      if (!this.answer) throw new ApiError(0, { message: "the stream ended before the text was done" });
    } catch (error) {
      if (error.name === "AbortError") this.stopped = true;
      else this.error = error;
    }
    this.seconds = (performance.now() - began) / 1000;
    this.onchange(this);
  }

  stop() {
    this.abort.abort();
  }

  /** Events that a later server may know are kept out of the frames, and do no harm. */
  take(event, data) {
    if (data.index > 0) return;
    if (event === "canvas") this.template = data;
    else if (event === "step" || event === "handoff") this.frames.push({ kind: event, ...data });
    else if (event === "reopen" && Array.isArray(data.positions)) this.frames.push({ kind: event, ...data });
    else if (event === "sample") this.sample = data;
    else if (event === "done") this.answer = data;
    else if (event === "error") throw new ApiError(0, data.error);
  }

  /** Steps T, so far as they are known. */
  get steps() {
    return this.answer?.steps ?? this.body.steps ?? this.template?.positions.length ?? this.body.gen_length ?? null;
  }

  get length() {
    const seen = Math.max(-1, ...this.frames.flatMap((frame) => frame.positions ?? []), ...this.frames.flatMap((frame) => frame.filled ?? []));
    return Math.max(this.answer?.gen_length ?? this.template?.canvas.length ?? this.body.gen_length ?? 0, seen + 1);
  }

  get fullCfg() {
    return this.sample?.forward_evaluations.full_cfg_equivalent ?? (this.steps === null ? null : 2 * this.steps);
  }

  /** Steps among the first `shown` frames. */
  stepsIn(shown = this.frames.length) {
    return this.frames.slice(0, shown).filter((frame) => frame.kind === "step").length;
  }

  /** How many frames the first `steps` steps take, with what happened right after the last of them. */
  framesUpTo(steps) {
    let seen = 0;
    const next = this.frames.findIndex((frame) => frame.kind === "step" && (seen += 1) > steps);
    return next < 0 ? this.frames.length : next;
  }

  /** The canvas after `shown` frames: for each position null (masked) or { piece, phase, confidence, step, ... }. */
  canvas(shown = this.frames.length, highlight = true) {
    const cells = Array(this.length).fill(null);
    for (const [position, piece] of (this.template?.pieces ?? []).entries()) if (!this.template.positions.includes(position)) cells[position] = { piece, fixed: true };
    let ordinal = 0;
    for (const [index, frame] of this.frames.slice(0, shown).entries()) {
      const fresh = highlight && index === shown - 1;
      if (frame.kind === "reopen") {
        const old = [...cells];
        // Repair may go on from an earlier text than the one on the canvas.
        for (const [position, cell] of cells.entries()) if (cell && frame.pieces?.[position]) cells[position] = { ...cell, piece: frame.pieces[position] };
        for (const position of frame.positions) cells[position] = { reopened: true, before: old[position]?.piece ?? "", fresh };
      } else if (frame.kind === "step") {
        ordinal += 1;
        for (const [slot, position] of frame.positions.entries()) {
          if (frame.mending && cells[position]?.piece === frame.pieces[slot]) continue; // looked at again, and kept
          cells[position] = { piece: frame.pieces[slot], phase: frame.phase, confidence: frame.confidence[slot], step: ordinal, again: frame.mending || Boolean(cells[position]?.reopened), fresh };
        }
        for (const position of frame.filled ?? []) cells[position] ??= { piece: "", phase: frame.phase, confidence: null, step: ordinal, filled: true, fresh };
      }
    }
    return cells;
  }
}

/** How a token is shown: { text, special }. */
export function display(piece) {
  if (piece === "") return { text: "\u220e", special: true };
  if (/^(\[[A-Z]+\]|<[^<>]*>)$/.test(piece)) return { text: "\u220e", special: true };
  const text = piece.replaceAll("\n", "\u23ce").trim();
  return text ? { text, special: false } : { text: "\u2423", special: true };
}
