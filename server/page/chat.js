// The conversation on the screen: sending, streaming, stopping, editing; and the list of all.
import { chunks, request, BrokenOff } from "./api.js";
import { $, Sentences, announce, button, confirmed, copyButton, dialog, h, saveFile } from "./dom.js";
import { MessageView } from "./message.js";
import { drawSettings, requestFields } from "./settings.js";
import { allConversations, newConversation, readExport, removeAll, removeConversation, saveConversation } from "./store.js";

let conversation = newConversation();
let running = null; // AbortController of the answer in progress

// ---- requests ----

function sentMessage({ role, content, reasoning, tool_calls, tool_call_id }) {
  const out = { role, content };
  if (reasoning) out.reasoning_content = reasoning;
  if (tool_calls) out.tool_calls = tool_calls;
  if (tool_call_id) out.tool_call_id = tool_call_id;
  return out;
}

function requestBody() {
  const messages = conversation.messages.filter(({ content, tool_calls }) => content || tool_calls).map(sentMessage);
  if (conversation.system) messages.unshift({ role: "system", content: conversation.system });
  return { model: $("model").value, messages, stream: true, stream_options: { include_usage: true }, ...requestFields() };
}

function addCalls(message, deltas) {
  message.tool_calls ??= [];
  for (const { index, id, function: part } of deltas) {
    message.tool_calls[index] ??= { id: id ?? `call-${index}`, type: "function", function: { name: "", arguments: "" } };
    const call = message.tool_calls[index].function;
    if (part?.name) call.name += part.name;
    if (part?.arguments) call.arguments += part.arguments;
  }
}

function addChunk(message, chunk, start) {
  const choice = chunk.choices?.[0], delta = choice?.delta ?? {}, { stats } = message;
  const thought = delta.reasoning_content ?? delta.reasoning;
  if ((delta.content || thought || delta.tool_calls) && stats.first_ms === undefined) stats.first_ms = performance.now() - start;
  if (delta.content) message.content += delta.content;
  if (thought) message.reasoning += thought;
  if (delta.tool_calls) addCalls(message, delta.tool_calls);
  if (choice?.logprobs?.content) (message.logprobs ??= []).push(...choice.logprobs.content);
  if (choice?.finish_reason) stats.finish = choice.finish_reason;
  if (!chunk.usage) return;
  stats.tokens = chunk.usage.completion_tokens;
  stats.prompt = chunk.usage.prompt_tokens;
  stats.cached = chunk.usage.prompt_tokens_details?.cached_tokens;
}

function problemOf(error) {
  if (error.name === "AbortError") return "You stopped this answer.";
  if (error instanceof BrokenOff) return `${error.message} This answer is incomplete.`;
  return error.message;
}

// ---- streaming ----

const isAtEnd = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 80;
const scrollToEnd = () => ($("scroll").scrollTop = $("scroll").scrollHeight);

function setRunning(controller) {
  running = controller;
  $("stop").disabled = !controller;
  $("send").disabled = Boolean(controller);
  $("chat").classList.toggle("running", Boolean(controller));
  $("messages").setAttribute("aria-busy", String(Boolean(controller)));
}

// Draws at most once a frame, and says whole sentences to screen readers.
class Painter {
  constructor(view) {
    this.view = view;
    this.sentences = new Sentences();
    this.frame = 0;
  }

  paint() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      const follows = isAtEnd();
      if (!this.view.grow()) this.paint();
      if (follows) scrollToEnd();
      this.sentences.grow(this.view.message.content, false);
    });
  }

  end() {
    cancelAnimationFrame(this.frame);
    const follows = isAtEnd();
    this.view.finish();
    if (follows) scrollToEnd();
    this.sentences.grow(this.view.message.content, true);
    if (this.view.message.problem) announce(this.view.message.problem);
  }
}

async function stream(message, view, body) {
  const controller = new AbortController(), painter = new Painter(view), start = performance.now();
  setRunning(controller);
  try {
    const response = await request("v1/chat/completions", { body, signal: controller.signal });
    for await (const chunk of chunks(response)) {
      addChunk(message, chunk, start);
      painter.paint();
    }
  } catch (error) {
    message.problem = problemOf(error);
  }
  message.stats.total_ms = performance.now() - start;
  setRunning(null);
  painter.end();
}

async function keep() {
  conversation.updated = Date.now();
  try {
    await saveConversation(conversation);
  } catch (error) {
    announce(`The browser could not keep this conversation: ${error.message}`);
  }
  await drawHistory();
}

// Asks for the answer to the messages so far.
async function answer() {
  if (running) return;
  const message = { role: "assistant", content: "", reasoning: "", stats: {} };
  let body;
  try {
    body = requestBody();
    if (body.seed !== undefined) message.stats.seed = body.seed;
  } catch (error) {
    await dialog("A setting is wrong", (close) => [h("p", {}, error.message), h("div", { class: "row end" }, button("Close", close))]);
    return;
  }
  const asked = conversation;
  conversation.messages.push(message);
  drawMessages();
  const view = views.at(-1);
  scrollToEnd();
  await keep();
  await stream(message, view, body);
  if (conversation === asked) await keep();
  else await saveConversation(asked);
  if (conversation === asked && message.tool_calls) drawMessages();
}

async function send(text) {
  if (!text.trim() || running) return;
  if (!conversation.messages.length) conversation.title = text.trim().slice(0, 60);
  conversation.messages.push({ role: "user", content: text });
  $("input").value = "";
  await answer();
}

export const stop = () => running?.abort();

// ---- messages ----

let views = [];

function cutBefore(message) {
  conversation.messages.length = conversation.messages.indexOf(message);
}

const acts = {
  async edit(message, text) {
    if (running || !text.trim()) return;
    cutBefore(message);
    await send(text);
    $("input").focus();
  },
  async regenerate(message) {
    if (running) return;
    cutBefore(message);
    await answer();
  },
  async result(call, text) {
    if (running) return;
    conversation.messages.push({ role: "tool", content: text, tool_call_id: call.id });
    const caller = conversation.messages.findLast(({ tool_calls }) => tool_calls);
    const results = new Set(conversation.messages.map(({ tool_call_id }) => tool_call_id));
    drawMessages();
    if (caller.tool_calls.every(({ id }) => results.has(id))) await answer();
  },
};

function drawMessages() {
  const results = new Set(conversation.messages.map(({ tool_call_id }) => tool_call_id));
  views = conversation.messages.map((message) => {
    const isAnswered = (message.tool_calls ?? []).every(({ id }) => results.has(id));
    return new MessageView(message, acts, isAnswered).finish();
  });
  const empty = h("p", { class: "empty" }, "Write a message below. Conversations stay in this browser.");
  $("messages").replaceChildren(...(views.length ? views.map(({ element }) => element) : [empty]));
}

// ---- the list of conversations ----

function show(next) {
  stop();
  conversation = next;
  drawMessages();
  drawSettings($("settings"), systemField());
  scrollToEnd();
  drawHistory();
}

function systemField() {
  const input = h("textarea", { id: "system", rows: 3, placeholder: "None" });
  input.value = conversation.system;
  input.addEventListener("input", () => (conversation.system = input.value));
  input.addEventListener("change", () => conversation.messages.length && keep());
  return h("div", {}, h("label", { for: "system" }, "System prompt of this conversation"), input);
}

async function exportAll() {
  const conversations = (await allConversations()).map(({ title, system, messages }) => ({ title, system, messages }));
  saveFile("penstock-conversations.json", "application/json", JSON.stringify({ conversations }, null, 1));
}

async function importFile(file) {
  try {
    const read = readExport(await file.text());
    for (const one of read) await saveConversation(one);
    announce(`${read.length} conversations imported`);
  } catch (error) {
    await dialog("The file cannot be imported", (close) => [h("p", {}, `${file.name}: ${error.message}.`), h("div", { class: "row end" }, button("Close", close))]);
  }
  await drawHistory();
}

async function deleteAll() {
  if (!(await confirmed("Delete all conversations?", "They are removed from this browser and cannot be brought back.", "Delete all"))) return;
  await removeAll();
  show(newConversation());
  announce("All conversations are deleted");
}

async function deleteOne(one) {
  if (!(await confirmed("Delete this conversation?", one.title, "Delete"))) return;
  await removeConversation(one.id);
  if (one.id === conversation.id) show(newConversation());
  else await drawHistory();
}

function item(one) {
  const isShown = one.id === conversation.id;
  return h("li", {}, button(one.title, () => show(isShown ? conversation : one), { class: "title", "aria-current": isShown ? "true" : null }),
    button("✕", () => deleteOne(one), { class: "small", "aria-label": `Delete ${one.title}` }));
}

async function drawHistory() {
  const all = await allConversations();
  const file = h("input", { type: "file", accept: ".json,application/json", class: "hidden", tabindex: "-1", "aria-label": "File to import" });
  file.addEventListener("change", () => importFile(file.files[0]));
  $("history").replaceChildren(
    h("h2", {}, "Conversations"),
    button("New conversation", () => {
      show(newConversation());
      $("input").focus();
    }, { class: "primary" }),
    all.length ? h("ul", {}, all.map(item)) : h("p", { class: "hint" }, "None yet"),
    h("div", { class: "row" }, button("Export", exportAll), button("Import", () => file.click()), file,
      button("Delete all", deleteAll, { class: "danger" })));
}

// ---- as curl ----

// The key is left as a variable of the shell, so that the text can be passed on.
function curlText() {
  const body = JSON.stringify(requestBody(), null, 1).replaceAll("'", "'\\''");
  const key = sessionStorage.getItem("penstock-key") ? " \\\n  -H \"Authorization: Bearer $PENSTOCK_KEY\"" : "";
  return `curl -N ${new URL("v1/chat/completions", document.baseURI)} \\\n  -H 'Content-Type: application/json'${key} \\\n  -d '${body}'`;
}

async function showCommand() {
  let text;
  try {
    text = curlText();
  } catch (error) {
    text = error.message;
  }
  await dialog("This conversation as a request", (close) => [
    h("pre", { tabindex: "0", role: "region", "aria-label": "Command" }, h("code", {}, text)),
    h("div", { class: "row end" }, copyButton(() => text), button("Close", close))]);
}

// ---- start ----

export async function openChat() {
  const [latest] = await allConversations();
  show(latest ?? conversation);
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send($("input").value);
  });
  $("input").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send($("input").value);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog")) stop();
  });
  $("stop").addEventListener("click", stop);
  $("curl").addEventListener("click", showCommand);
}
