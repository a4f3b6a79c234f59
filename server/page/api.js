// Requests to the server that sent this page. A key is kept in the tab (sessionStorage) only.
import { button, dialog, h } from "./dom.js";

const KEY = "penstock-key";
let asking = null;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class BrokenOff extends Error {}

// Asks for a key once, however many requests need it. Resolves with false if the user gives none.
function askKey(message) {
  asking ??= dialog("This server needs a key", (close) => {
    const input = h("input", { type: "password", autocomplete: "off", id: "key", required: true });
    const submit = (event) => {
      event.preventDefault();
      if (input.value.trim()) close(input.value.trim());
    };
    return [
      h("p", {}, message),
      h("form", { onsubmit: submit },
        h("label", { for: "key" }, "API key"), input,
        h("p", { class: "hint" }, "The key stays in this tab and goes to this server only."),
        h("div", { class: "row end" }, button("Cancel", () => close(null)),
          h("button", { type: "submit", class: "primary" }, "Use this key"))),
    ];
  }).then((key) => {
    asking = null;
    if (key) sessionStorage.setItem(KEY, key);
    return Boolean(key);
  });
  return asking;
}

async function messageOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return error.message ?? String(error);
  } catch {
    return text.slice(0, 500) || `The server answered with status ${response.status}.`;
  }
}

// Resolves with a successful response. Throws Refused with the server's message otherwise.
export async function request(path, { body, signal, accept = "application/json, text/event-stream" } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { Accept: accept };
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, { method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "The server cannot be reached.");
    }
    if (response.ok) return response;
    const message = await messageOf(response);
    const isNew = sessionStorage.getItem(KEY) !== key;
    if (response.status === 401 && (isNew || (await askKey(message)))) continue;
    const wait = response.headers.get("Retry-After");
    throw new Refused(response.status, wait ? `${message} (Try again in ${wait} s.)` : message);
  }
}

export const json = async (path, options) => (await request(path, options)).json();

// Yields the data of each server-sent event. Throws BrokenOff if the connection breaks.
export async function* events(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new BrokenOff("The connection to the server broke.");
    }
    if (part.done) return;
    const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

// Yields the chunks of a streamed answer. Throws Refused for an error event and BrokenOff for a
// stream without its end.
export async function* chunks(response) {
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Refused(chunk.error.code ?? 500, chunk.error.message);
    yield chunk;
  }
  throw new BrokenOff("The stream ended before the answer was complete.");
}
