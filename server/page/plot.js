// Drawings of numbers as SVG: cells of memory and curves over time. Tables beside them have the same numbers.
import { h, svg } from "./dom.js";

const MAX_CELLS = 4096;

// The table that belongs to a drawing, folded; `draw` fills it when it is opened.
function folded(title, names, body, draw) {
  const head = h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)));
  const wide = { class: "wide", tabindex: "0", role: "region", "aria-label": `Table: ${title}` };
  return h("details", { ontoggle: draw }, h("summary", {}, "The same as a table"), h("div", wide, h("table", {}, h("thead", {}, head), body)));
}

// The KV blocks: one cell a block, or a cell for several blocks if there are more than 4,096.
export class Cells {
  constructor() {
    this.element = svg("svg", { class: "cells", role: "img" });
    this.cells = [];
    this.shape = "";
    this.rows = [];
    this.body = h("tbody");
    this.details = folded("KV cache", ["State", "Blocks", "Tokens", "Share"], this.body, () => this.drawTable());
  }

  layout(n) {
    const isNarrow = this.element.clientWidth < 560;
    const columns = Math.max(8, Math.ceil(Math.sqrt(n * (isNarrow ? 1.6 : 3.2))));
    if (this.shape === `${n} ${columns}`) return;
    this.shape = `${n} ${columns}`;
    this.cells = Array.from({ length: n }, (_, i) =>
      svg("rect", { x: (i % columns) + 0.07, y: Math.floor(i / columns) + 0.07, width: 0.86, height: 0.86, class: "cf" }));
    this.element.replaceChildren(...this.cells);
    this.element.setAttribute("viewBox", `0 0 ${columns} ${Math.ceil(n / columns)}`);
  }

  // `host`: the blocks in the host's memory.
  draw({ total, used, cached, free, size }, host) {
    const scale = Math.ceil(total / MAX_CELLS) || 1;
    this.layout(Math.ceil(total / scale));
    this.cells.forEach((cell, i) => {
      const block = i * scale, kind = block < used ? "c0" : block < used + cached ? "c1" : "cf";
      if (cell.getAttribute("class") !== kind) cell.setAttribute("class", kind);
    });
    this.element.setAttribute("aria-label", `${used} of ${total} blocks used, ${cached} cached, ${free} free` +
      (scale > 1 ? `; a cell is ${scale} blocks` : ""));
    const row = (name, n, all) => [name, n, n * size, all && `${((100 * n) / all).toFixed(1)} %`];
    this.rows = [row("used", used, total), row("cached", cached, total), row("free", free, total), row("all", total, total)];
    if (host.total) this.rows.push(row("swapped to the host", host.used, host.total), row("cached by the host", host.cached, host.total));
    this.drawTable();
  }

  drawTable() {
    if (!this.details.open) return;
    this.body.replaceChildren(...this.rows.map(([name, ...numbers]) =>
      h("tr", {}, h("th", { scope: "row" }, name), numbers.map((value) => h("td", {}, value)))));
  }
}

const WIDTH = 480, HEIGHT = 150, LEFT = 44, BOTTOM = 132, TOP = 8;

// Rounds up to 1, 2 or 5 times a power of ten.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

export const short = (value) => (!value ? "0" : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

// Curves of the last `n` points: `stacked` areas, or lines. A point is a list with a value for each name.
export class Curves {
  constructor(title, names, unit, { stacked = false, n = 120 } = {}) {
    Object.assign(this, { title, names, unit, stacked, n, points: [] });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    this.legend = h("ul", { class: "legend" });
    this.body = h("tbody");
    this.details = folded(title, ["Seconds ago", ...names.map((name) => `${name} (${unit})`)], this.body, () => this.drawTable());
    this.element = h("section", { class: "card", "aria-label": title }, h("h3", {}, title), this.picture, this.legend, this.details);
  }

  add(point) {
    this.points.push(point);
    if (this.points.length > this.n) this.points.shift();
    this.draw();
    this.drawTable();
  }

  path(values, below, top) {
    const x = (i) => LEFT + ((WIDTH - LEFT) * (i + this.n - values.length)) / (this.n - 1);
    const y = (value) => BOTTOM - ((BOTTOM - TOP) * value) / top;
    const line = values.map((value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`);
    if (!this.stacked) return `M${line.join("L")}`;
    const back = below.map((value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
    return `M${line.join("L")}L${back.join("L")}Z`;
  }

  draw() {
    const sums = this.points.map((point) => (this.stacked ? point.reduce((a, b) => a + b, 0) : Math.max(...point)));
    const top = roundUp(Math.max(...sums));
    const axis = [0, 0.5, 1].flatMap((part) => {
      const y = BOTTOM - (BOTTOM - TOP) * part;
      return [svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y, class: "axis" }),
              svg("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end" }, String(+(top * part).toPrecision(3)))];
    });
    let below = this.points.map(() => 0);
    const shapes = this.names.map((_, k) => {
      const values = this.points.map((point, i) => point[k] + (this.stacked ? below[i] : 0));
      const shape = svg("path", { d: this.path(values, below, top), class: `c${k} ${this.stacked ? "" : "line"}` });
      below = values;
      return shape;
    });
    const ends = [svg("text", { x: LEFT, y: HEIGHT - 4 }, `${this.n / 2} s ago`), svg("text", { x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, "now")];
    this.picture.replaceChildren(...axis, ...shapes, ...ends);
    const now = this.points.at(-1);
    this.picture.setAttribute("aria-label", this.names.map((name, k) => `${name} ${short(now[k])} ${this.unit}`).join(", "));
    this.legend.replaceChildren(...this.names.map((name, k) => h("li", { class: `c${k}` }, `${name} ${short(now[k])} ${this.unit}`)));
  }

  drawTable() {
    if (!this.details.open) return;
    this.body.replaceChildren(...this.points.slice(-20).reverse().map((point, i) =>
      h("tr", {}, h("td", {}, (i / 2).toFixed(1)), point.map((value) => h("td", {}, short(value))))));
  }
}
