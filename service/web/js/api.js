// This server's API: JSON calls, the event stream of a generation, and the one shape of errors.

const KEY = "astargate-api-key";

export const apiKey = () => sessionStorage.getItem(KEY);

export function setApiKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** An answer other than success; `param` is the dotted path of the field at fault, where there is one. */
export class ApiError extends Error {
  constructor(status, { message, param = null }) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

async function send(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "the server cannot be reached" });
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  let detail = null;
  try {
    detail = (await response.json()).error;
  } catch {
    detail = null; // a proxy's own page: the status says what there is to say
  }
  return new ApiError(response.status, detail ?? { message: `the server answered ${response.status}` });
}

/** The decoded JSON of an answer, with its status as `status`. */
export async function call(path, options) {
  const response = await send(path, options);
  return { status: response.status, data: response.status === 204 ? null : await response.json() };
}

export async function get(path, options) {
  return (await call(path, options)).data;
}

/** Server-sent events of `POST path`, as { event, data }; comments are skipped. */
export async function* events(path, body, signal) {
  const response = await send(path, { method: "POST", body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      let end;
      while ((end = buffer.indexOf("\n\n")) >= 0) {
        const parsed = parse(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        if (parsed) yield parsed;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // leaving early frees the server's rows
  }
}

function parse(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}
