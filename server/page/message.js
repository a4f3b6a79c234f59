// One message of a conversation as elements.
import { button, copyButton, h } from "./dom.js";
import { Growing, codeBlock } from "./markdown.js";

const NAMES = { user: "You", assistant: "Model", tool: "Tool result" };

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// "128 tokens, 45.2 tokens/s, first after 80 ms, 31 of the prompt, 16 of these cached, seed 7"
export function statsText({ tokens, prompt, cached, first_ms, total_ms, seed, finish }) {
  const parts = [];
  if (tokens !== undefined) parts.push(`${tokens} tokens`);
  const rest_s = (total_ms - first_ms) / 1000;
  if (tokens > 1 && rest_s > 0) parts.push(`${((tokens - 1) / rest_s).toFixed(1)} tokens/s`);
  if (first_ms !== undefined) parts.push(`first after ${Math.round(first_ms)} ms`);
  if (prompt !== undefined) parts.push(`prompt ${prompt}${cached ? ` (${cached} cached)` : ""}`);
  if (seed !== undefined) parts.push(`seed ${seed}`);
  if (finish && finish !== "stop") parts.push(`ended by ${finish}`);
  return parts.join(" · ");
}

function callView(call, answered, onresult) {
  const view = h("div", { class: "call" }, h("p", {}, "Calls ", h("code", {}, call.function.name)), codeBlock(pretty(call.function.arguments), "arguments"));
  if (answered || !onresult) return view;
  const id = `result-${call.id}`;
  const input = h("textarea", { id, rows: 2, spellcheck: "false" });
  view.append(h("label", { for: id }, `Result of ${call.function.name}`), input,
    h("div", { class: "row end" }, button("Send the result", () => onresult(call, input.value), { class: "primary" })));
  return view;
}

const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;

function logprobsView(entries) {
  const body = h("tbody");
  const details = h("details", { class: "logprobs" }, h("summary", {}, `Log probabilities of ${entries.length} tokens`),
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Log probabilities" },
      h("table", {}, h("thead", {}, h("tr", {}, ["Token", "Log probability", "Share", "Alternatives"].map((name) => h("th", {}, name)))), body)));
  details.addEventListener("toggle", () => {
    body.replaceChildren(...entries.slice(0, 5000).map(({ token, logprob, top_logprobs }) =>
      h("tr", {}, h("td", {}, h("code", {}, JSON.stringify(token))), h("td", {}, logprob.toFixed(3)), h("td", {}, percent(logprob)),
        h("td", {}, (top_logprobs ?? []).map((top) => h("span", { class: "top" }, h("code", {}, JSON.stringify(top.token)), ` ${percent(top.logprob)}`))))));
  });
  return details;
}

// The view of a message. `acts` has the functions of its buttons: edit, regenerate, result.
export class MessageView {
  constructor(message, acts, isAnswered = false) {
    this.message = message;
    this.acts = acts;
    this.isAnswered = isAnswered;
    this.content = h("div", { class: "content" });
    this.thoughts = h("div", { class: "content thoughts" });
    this.folded = h("details", { hidden: true }, h("summary", {}, "Reasoning"), this.thoughts);
    this.calls = h("div");
    this.notice = h("p", { class: "problem", hidden: true });
    this.foot = h("div", { class: "foot" });
    this.element = h("article", { class: `message ${message.role}`, "aria-label": NAMES[message.role] },
      h("h2", { class: "role" }, NAMES[message.role]), this.folded, this.content, this.calls, this.notice, this.foot);
    this.growing = new Growing(this.content);
    this.growingThoughts = new Growing(this.thoughts);
  }

  // Draws a part of a stream, unless this is too early. Returns false if it was.
  grow() {
    const { content, reasoning } = this.message;
    this.folded.hidden = !reasoning;
    const isLate = reasoning && !content ? this.growingThoughts.draw(reasoning) : this.growing.draw(content);
    if (content && reasoning && !this.hasAllThoughts) {
      this.growingThoughts.finish(reasoning);
      this.hasAllThoughts = true;
    }
    return isLate;
  }

  // Draws the whole message.
  finish() {
    const { role, content, reasoning, tool_calls, logprobs, stats, problem } = this.message;
    if (role === "user") this.content.replaceChildren(h("p", { class: "plain", dir: "auto" }, content));
    else if (role === "tool") this.content.replaceChildren(codeBlock(pretty(content), "result"));
    else this.growing.finish(content);
    this.folded.hidden = !reasoning;
    if (reasoning) this.growingThoughts.finish(reasoning);
    this.calls.replaceChildren(...(tool_calls ?? []).map((call) => callView(call, this.isAnswered, this.acts?.result)));
    if (logprobs?.length) this.calls.append(logprobsView(logprobs));
    this.notice.hidden = !problem;
    this.notice.textContent = problem ?? "";
    this.foot.replaceChildren(h("span", { class: "stats" }, stats ? statsText(stats) : ""));
    if (this.acts) this.foot.append(h("span", { class: "row" }, this.buttons()));
    return this;
  }

  buttons() {
    const { role, content } = this.message, about = (text) => ({ "aria-label": `${text} this message` });
    const list = content ? [copyButton(() => content)] : [];
    if (role === "user") list.push(button("Edit", () => this.edit(), about("Edit")));
    if (role === "assistant") list.push(button("Regenerate", () => this.acts.regenerate(this.message), about("Regenerate")));
    return list;
  }

  edit() {
    const input = h("textarea", { rows: 4, "aria-label": "Edited message" });
    input.value = this.message.content;
    const cancel = () => {
      this.finish();
      this.foot.querySelector("[aria-label^=Edit]").focus();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") cancel();
    });
    this.content.replaceChildren(input, h("div", { class: "row end" }, button("Cancel", cancel),
      button("Send again", () => this.acts.edit(this.message, input.value), { class: "primary" })));
    this.foot.replaceChildren();
    input.focus();
  }
}
