// Markdown as elements. The subset that models write: headings, lists, quotes, tables, code, rules,
// emphasis and links. HTML in the text stays text, and images become links, so nothing is loaded.
import { copyButton, h } from "./dom.js";

const MAX_INLINE = 20000; // longer paragraphs are shown as they are
const MAX_DEPTH = 8;

// ---- inside a paragraph ----

const PAIRS = [
  ["***", (kids) => h("strong", {}, h("em", {}, kids))],
  ["**", (kids) => h("strong", {}, kids)],
  ["__", (kids) => h("strong", {}, kids)],
  ["~~", (kids) => h("s", {}, kids)],
  ["*", (kids) => h("em", {}, kids)],
  ["_", (kids) => h("em", {}, kids)],
];
const SPECIAL = /[\\`*_~![<h]/g;
const isWord = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);

function link(address, kids) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return null;
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, kids);
}

function readCode(text, at) {
  const mark = /^`+/.exec(text.slice(at, at + 40))[0];
  let end = text.indexOf(mark, at + mark.length);
  while (end > 0 && text[end + mark.length] === "`") {
    while (text[end] === "`") end++;
    end = text.indexOf(mark, end);
  }
  if (end < 0) return null;
  const code = text.slice(at + mark.length, end).replace(/^ (.*) $/s, "$1");
  return { node: h("code", {}, code), end: end + mark.length };
}

function readLink(text, at, depth) {
  const isImage = text[at] === "!";
  const match = /^!?\[([^\]\n]{0,500})\]\(<?([^\s()<>]{1,2000})>?(?:\s+"[^"\n]{0,200}")?\)/.exec(text.slice(at, at + 3000));
  if (!match) return null;
  const node = link(match[2], isImage ? match[1] || match[2] : inline(match[1], depth + 1));
  return node && { node, end: at + match[0].length };
}

function readAddress(text, at) {
  if (isWord(text[at - 1])) return null;
  const match = /^https?:\/\/[^\s<>"'`)\]]+/i.exec(text.slice(at, at + 2000));
  if (!match) return null;
  const address = match[0].replace(/[.,;:!?]+$/, "");
  return { node: link(address, address), end: at + address.length };
}

function readPair(text, at, depth, absent) {
  for (const [mark, make] of PAIRS) {
    if (!text.startsWith(mark, at) || absent.has(mark)) continue;
    const from = at + mark.length;
    if (from >= text.length || /\s/.test(text[from])) continue;
    if (mark[0] === "_" && isWord(text[at - 1])) continue;
    let end = text.indexOf(mark, from + 1);
    if (end < 0) absent.add(mark);
    while (end > 0 && (/\s/.test(text[end - 1]) || (mark.length === 1 && text[end + 1] === mark) ||
                       (mark[0] === "_" && isWord(text[end + mark.length])))) {
      const next = end + (text[end + 1] === mark ? 2 : 1);
      end = next - from > 2000 ? -1 : text.indexOf(mark, next);
    }
    if (end > 0) return { node: make(inline(text.slice(from, end), depth + 1)), end: end + mark.length };
  }
  return null;
}

function readSpecial(text, at, depth, absent) {
  switch (text[at]) {
    case "\\":
      return /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "") ? { node: text[at + 1], end: at + 2 } : null;
    case "`":
      return readCode(text, at);
    case "!":
      return text[at + 1] === "[" ? readLink(text, at, depth) : null;
    case "[":
      return readLink(text, at, depth);
    case "h":
      return readAddress(text, at);
    case "<": {
      const match = /^<(https?:\/\/[^\s<>]+)>/i.exec(text.slice(at, at + 2000));
      return match && { node: link(match[1], match[1]), end: at + match[0].length };
    }
    default:
      return readPair(text, at, depth, absent);
  }
}

// Returns the nodes of a paragraph's text.
export function inline(text, depth = 0) {
  if (text.length > MAX_INLINE || depth > MAX_DEPTH) return [text];
  const nodes = [], absent = new Set();
  let from = 0;
  SPECIAL.lastIndex = 0;
  for (let match; (match = SPECIAL.exec(text)); ) {
    const at = match.index;
    const found = readSpecial(text, at, depth, absent);
    if (!found) {
      SPECIAL.lastIndex = at + 1;
      continue;
    }
    if (at > from) nodes.push(text.slice(from, at));
    nodes.push(found.node);
    SPECIAL.lastIndex = from = found.end;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

// ---- blocks ----

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_LINE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const isTable = (lines, i) => lines[i].includes("|") && TABLE_LINE.test(lines[i + 1] ?? "") && lines[i + 1].includes("-");

const startsBlock = (lines, i) =>
  [FENCE, HEADING, RULE, ITEM, QUOTE].some((form) => form.test(lines[i])) || isTable(lines, i);

export function codeBlock(code, language) {
  return h("div", { class: "code" },
    h("div", { class: "row" }, h("span", { class: "hint" }, language || "code"), copyButton(() => code)),
    h("pre", { tabindex: "0", role: "region", "aria-label": `${language || "code"} block` }, h("code", { dir: "ltr" }, code)));
}

function readFence(lines, i) {
  const [, mark, language] = FENCE.exec(lines[i]);
  let end = i + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(mark) && /^\s*[`~]+\s*$/.test(lines[end]))) end++;
  return [codeBlock(lines.slice(i + 1, end).join("\n"), language), end + 1];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function readTable(lines, i) {
  const head = cells(lines[i]);
  let end = i + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  const row = (tag) => (line) => h("tr", {}, head.map((_, n) => h(tag, {}, inline(cells(line)[n] ?? ""))));
  const table = h("table", {}, h("thead", {}, row("th")(lines[i])), h("tbody", {}, lines.slice(i + 2, end).map(row("td"))));
  return [h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, table), end];
}

function readQuote(lines, i, depth) {
  let end = i;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  return [h("blockquote", {}, blocks(lines.slice(i, end).map((line) => line.replace(QUOTE, "")), depth + 1)), end];
}

function readList(lines, i, depth) {
  const first = ITEM.exec(lines[i]);
  const indent = first[1].length, isNumbered = /\d/.test(first[2]);
  const list = h(isNumbered ? "ol" : "ul", isNumbered ? { start: parseInt(first[2], 10) } : {});
  while (i < lines.length) {
    const item = ITEM.exec(lines[i]);
    if (!item || item[1].length > indent + 1 || item[1].length < indent || /\d/.test(item[2]) !== isNumbered) break;
    const inner = [item[3]];
    const isInside = (line) => /^\s/.test(line) && line.search(/\S/) > indent;
    for (i++; i < lines.length; i++) {
      const isGap = !lines[i].trim() && i + 1 < lines.length && isInside(lines[i + 1]);
      if (!isGap && !(lines[i].trim() && (isInside(lines[i]) || !startsBlock(lines, i)))) break;
      inner.push(lines[i].slice(Math.min(lines[i].search(/\S|$/), indent + 2)));
    }
    list.append(h("li", { dir: "auto" }, blocks(inner, depth + 1, true)));
    while (i < lines.length && !lines[i].trim() && ITEM.test(lines[i + 1] ?? "")) i++;
  }
  return [list, i];
}

function readParagraph(lines, i, isTight) {
  let end = i + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines, end)) end++;
  const nodes = [];
  lines.slice(i, end).forEach((line, n) => {
    if (n > 0) nodes.push(h("br"));
    nodes.push(...inline(line.trim()));
  });
  return [isTight && i === 0 ? nodes : h("p", { dir: "auto" }, nodes), end];
}

// Returns the nodes of lines. `isTight`: the first paragraph is a list item's own text.
function blocks(lines, depth = 0, isTight = false) {
  const nodes = [];
  if (depth > MAX_DEPTH) return [h("p", { dir: "auto" }, lines.join("\n"))];
  for (let i = 0; i < lines.length; ) {
    const heading = HEADING.exec(lines[i]);
    let node = null, end = i + 1;
    if (FENCE.test(lines[i])) [node, end] = readFence(lines, i);
    else if (heading) node = h("h" + Math.min(6, heading[1].length + 2), { dir: "auto" }, inline(heading[2]));
    else if (RULE.test(lines[i])) node = h("hr");
    else if (QUOTE.test(lines[i])) [node, end] = readQuote(lines, i, depth);
    else if (ITEM.test(lines[i])) [node, end] = readList(lines, i, depth);
    else if (isTable(lines, i)) [node, end] = readTable(lines, i);
    else if (lines[i].trim()) [node, end] = readParagraph(lines, i, isTight);
    if (node) nodes.push(...[node].flat());
    i = end;
  }
  return nodes;
}

export const markdown = (text) => blocks(text.replaceAll("\r", "").split("\n"));

// Shows a growing text. Blocks before the last blank line outside of code are final: only the rest
// is made anew, so the work of a frame does not grow with the answer.
export class Growing {
  constructor(element) {
    this.element = element;
    this.done = 0; // characters of final blocks
    this.tail = [];
    this.next = 0; // time of the next drawing: a tenth of the time is for drawing, at most
  }

  // Returns the end of the blocks that cannot change any more.
  finalEnd(text) {
    const rest = text.slice(this.done);
    if (rest.length > 200000) return this.done;
    let end = 0, at = 0, fence = null;
    for (const line of rest.split("\n").slice(0, -1)) {
      at += line.length + 1;
      const mark = FENCE.exec(line)?.[1];
      if (!fence && mark) fence = mark;
      else if (fence && line.trim().startsWith(fence)) fence = null;
      if (!fence && !line.trim() && !/^\s|^([-*+]|\d{1,9}[.)])\s/.test(rest.slice(at, at + 12))) end = at;
    }
    const follows = rest.slice(end);
    return follows.trim() ? this.done + end : this.done;
  }

  draw(text, now = performance.now()) {
    if (now < this.next) return false;
    const end = this.finalEnd(text);
    for (const node of this.tail) node.remove();
    if (end > this.done) this.element.append(...markdown(text.slice(this.done, end)));
    this.done = end;
    this.tail = markdown(text.slice(end)).map((node) => (typeof node === "string" ? document.createTextNode(node) : node));
    this.element.append(...this.tail);
    this.next = now + 10 * (performance.now() - now);
    return true;
  }

  finish(text) {
    this.element.replaceChildren(...markdown(text));
  }
}
