// The settings panel. An empty field means the server's default, which its placeholder shows; ranges
// and defaults are from /openapi.json, and the model's own from /props.
import { json } from "./api.js";
import { button, h } from "./dom.js";

const KEPT = "penstock-settings";
const TOOL = [{ type: "function", function: { name: "get_weather", description: "Returns the weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } }];
const SCHEMA = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"] };

// A field has a kind: "number"; "check"; "choice" of `values`; "json", which is an object if `isObject` is true; "lines", a
// text each, in which \n is a line end if `hasEscapes` is true; or "ids" of tokens.
const number = (name, label) => ({ name, label, kind: "number" });
const check = (name, label) => ({ name, label, kind: "check" });
const ids = (name, label) => ({ name, label: `${label} (ids of tokens)`, kind: "ids" });
const lines = (name, label, more) => ({ name, label: `${label}, one per line`, kind: "lines", ...more });
const ESCAPED = { "\\n": "\n", "\\t": "\t", "\\\\": "\\" };
const GROUPS = [
  ["Answer", [number("max_tokens", "Maximum tokens"), number("min_tokens", "Minimum tokens"), number("seed", "Seed"),
    lines("stop", "Stop strings (\\n: line end)", { hasEscapes: true }), lines("stop_regex", "Stop patterns (regular expressions)"),
    ids("stop_token_ids", "Stop tokens"), check("include_stop_str_in_output", "Show the stop string"), check("ignore_eos", "Ignore the model's end")]],
  ["Sampling", [number("temperature", "Temperature"), number("top_p", "Top p"), number("top_k", "Top k"), number("min_p", "Min p"),
    number("typical_p", "Typical p"), number("top_n_sigma", "Top n sigma"),
    number("epsilon_cutoff", "Epsilon cutoff"), number("eta_cutoff", "Eta cutoff"),
    number("xtc_probability", "XTC probability"), number("xtc_threshold", "XTC threshold"),
    number("mirostat", "Mirostat (0 or 2)"), number("mirostat_tau", "Mirostat tau"), number("mirostat_eta", "Mirostat eta")]],
  ["Repetition", [number("repetition_penalty", "Repetition penalty"), number("presence_penalty", "Presence penalty"),
    number("frequency_penalty", "Frequency penalty"), number("repeat_last_n", "Tokens that count (last n)"),
    number("no_repeat_ngram_size", "No repeated n-gram of"), number("dry_multiplier", "DRY multiplier"),
    number("dry_base", "DRY base"), number("dry_allowed_length", "DRY allowed length"), number("dry_penalty_last_n", "DRY last n"),
    lines("dry_sequence_breakers", "DRY sequence breakers (\\n: line end)", { hasEscapes: true, rows: 4 })]],
  ["Words and tokens", [lines("bad_words", "Forbidden words"), ids("allowed_token_ids", "Only these tokens"),
    { name: "logit_bias", label: "Logit bias by id (JSON)", kind: "json", isObject: true, example: { 1000: -100, 1001: 2.5 } }]],
  ["Reasoning", [{ name: "reasoning_effort", label: "Effort", kind: "choice", values: ["none", "minimal", "low", "medium", "high", "xhigh", "max"] },
    number("thinking_token_budget", "Token budget")]],
  ["Tools and format", [{ name: "tools", label: "Tools (JSON)", kind: "json", example: TOOL },
    { name: "tool_choice", label: "Tool choice", kind: "choice", values: ["auto", "none", "required"] },
    { name: "schema", label: "JSON schema of the answer", kind: "json", example: SCHEMA }]],
  ["More", [number("top_logprobs", "Log probabilities: alternatives per token"),
    { name: "more", label: "Other fields of the request (JSON)", kind: "json", isObject: true, example: { priority: 1 } }]],
];
const FIELDS = GROUPS.flatMap(([, fields]) => fields);

const BY_DEFAULT = { max_tokens: "all", seed: "random", repeat_last_n: "all", top_logprobs: "none", thinking_token_budget: "server's",
  allowed_token_ids: "all", dry_sequence_breakers: "\\n\n:\n\"\n*" };

let values = {};
let schema = {}; // field -> its schema
let defaults = {}; // field -> the model's own default

const keep = () => {
  try {
    localStorage.setItem(KEPT, JSON.stringify(values));
  } catch { /* the settings then last as long as the tab */ }
};

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    values = Object.fromEntries(FIELDS.filter(({ name }) => typeof kept[name] === "string").map(({ name }) => [name, kept[name]]));
  } catch {
    values = {};
  }
}

function parseJson({ label, isObject }, text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${label}: this is not JSON: ${error.message}`);
  }
  if (isObject && (typeof value !== "object" || !value || Array.isArray(value))) throw new Error(`${label}: this must be an object, {"name": value}`);
  return value;
}

function parseLines({ hasEscapes }, text) {
  const all = text.split("\n").filter(Boolean);
  return hasEscapes ? all.map((line) => line.replace(/\\[nt\\]/g, (found) => ESCAPED[found])) : all;
}

function parseIds({ label }, text) {
  return text.split(/[\s,]+/).filter(Boolean).map((word) => {
    if (!/^\d+$/.test(word)) throw new Error(`${label}: "${word}" is not an id, a whole number; write ids with spaces between them`);
    return Number(word);
  });
}

function valueOf(field, text) {
  if (field.kind === "number") return Number(text);
  if (field.kind === "lines") return parseLines(field, text);
  if (field.kind === "ids") return parseIds(field, text);
  if (field.kind === "check") return true;
  if (field.kind === "json") return parseJson(field, text);
  return text;
}

// Returns the fields of a request that the user has set. Throws an Error that names a bad field.
export function requestFields() {
  const out = {};
  for (const field of FIELDS) {
    const text = values[field.name];
    if (!text) continue;
    const value = valueOf(field, text);
    if (field.name === "schema") out.response_format = { type: "json_schema", json_schema: { name: "answer", schema: value } };
    else if (field.name === "more") Object.assign(out, value);
    else out[field.name] = value;
  }
  if (out.top_logprobs !== undefined) out.logprobs = true;
  if (!out.tools) delete out.tool_choice;
  return out;
}

function control(field) {
  const id = `set-${field.name}`, kept = values[field.name] ?? "";
  const props = { id, autocomplete: "off" };
  const change = (event) => {
    const { target } = event;
    if (target.type === "checkbox") values[field.name] = target.checked ? "true" : "";
    else if (field.kind === "lines") values[field.name] = /[^\n]/.test(target.value) ? target.value : ""; // spaces count
    else values[field.name] = target.value.trim();
    keep();
  };
  if (field.kind === "check") return h("input", { ...props, type: "checkbox", checked: kept === "true", onchange: change });
  if (field.kind === "choice") {
    const select = h("select", { ...props, onchange: change }, h("option", { value: "" }, "default"),
      field.values.map((value) => h("option", { value }, value)));
    select.value = kept;
    return select;
  }
  if (field.kind !== "number") {
    const rows = field.rows ?? { json: 4, lines: 2, ids: 1 }[field.kind];
    const area = h("textarea", { ...props, rows, spellcheck: "false", oninput: change, placeholder: BY_DEFAULT[field.name] ?? "none" });
    area.value = kept;
    return area;
  }
  const { minimum, maximum, default: fallback } = schema[field.name] ?? {};
  const shown = defaults[field.name] ?? fallback;
  const input = h("input", { ...props, type: "number", step: "any", min: minimum, max: maximum, oninput: change,
    placeholder: BY_DEFAULT[field.name] ?? String(shown ?? "default") });
  input.value = kept;
  return input;
}

function row(field) {
  const input = control(field);
  const label = h("label", { for: input.id }, field.label);
  if (field.kind === "check") return h("div", { class: "check" }, input, label);
  if (!field.example) return h("div", { class: ["lines", "ids"].includes(field.kind) ? "" : "pair" }, label, input);
  const show = () => {
    input.value = JSON.stringify(field.example, null, 1);
    input.dispatchEvent(new Event("input"));
  };
  return h("div", {}, h("div", { class: "row" }, label, button("Example", show, { "aria-label": `Example of ${field.label}` })), input);
}

const countSet = (fields) => fields.filter(({ name }) => values[name]).length;

function group([title, fields], n) {
  const mark = h("span", { class: "badge" });
  const count = () => (mark.textContent = countSet(fields) ? `${countSet(fields)} set` : "");
  count();
  return h("details", { open: n < 1 || countSet(fields) > 0, oninput: count, onchange: count },
    h("summary", {}, title, " ", mark), fields.map(row));
}

// Builds the panel. `system` is an element for the conversation's own setting.
export function drawSettings(panel, system) {
  const reset = button("Use the server's defaults", () => {
    values = {};
    keep();
    drawSettings(panel, system);
  });
  panel.replaceChildren(h("h2", {}, "Settings"), system, ...GROUPS.map(group), reset);
}

// Reads the kept settings, and the server's ranges and defaults.
export async function openSettings() {
  restore();
  const document = await json("openapi.json").catch(() => null);
  schema = document?.components?.schemas?.v1_chat_completions?.properties ?? {};
  const props = await json("props").catch(() => null);
  const params = props?.default_generation_settings?.params ?? {};
  for (const name of ["temperature", "top_k", "top_p", "min_p"]) defaults[name] = params[name];
  defaults.repetition_penalty = params.repeat_penalty;
}
