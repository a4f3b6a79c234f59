// The batch at work: snapshots of /penstock/live, while this view is shown.
import { events, request } from "./api.js";
import { $, announce, button, h } from "./dom.js";
import { Cells, Curves, short } from "./plot.js";

const PARTS = ["plan", "forward", "sample", "commit"];
const RETRY_MS = 2000;
let watching = null; // AbortController of the stream
let isPaused = false;
let view = null; // the elements, made when the view is first shown

function makeView() {
  const tiles = h("dl", { class: "tiles" }), problem = h("p", { class: "problem", hidden: true });
  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Continue" : "Pause";
    announce(isPaused ? "The view is paused" : "The view continues");
  });
  const cells = new Cells(), legend = h("ul", { class: "legend" }), host = h("p", { class: "hint" });
  const speed = new Curves("Tokens per second", ["generated", "prompt"], "tokens/s");
  const steps = new Curves("Time of a step by part", PARTS, "ms", { stacked: true });
  const rows = h("tbody"), caption = h("p", { class: "hint" });
  const names = ["Request", "State", "Prompt", "Output", "Cached", "Blocks", "Age"];
  const table = h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table of sequences" },
    h("table", {}, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), rows));
  $("live").replaceChildren(
    h("div", { class: "row" }, h("h2", {}, "The batch at work"), pause), problem, tiles,
    h("div", { class: "cards" },
      h("section", { class: "card", "aria-label": "KV cache" }, h("h3", {}, "KV cache"), cells.element, legend, host, cells.details),
      speed.element, steps.element),
    h("section", { class: "card", "aria-label": "Sequences" }, h("h3", {}, "Sequences"), caption, table));
  return { tiles, problem, cells, legend, host, speed, steps, rows, caption, table };
}

// ---- drawing ----

const tile = (name, value, note) => h("div", {}, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, ` ${note}`) : null));

function latency(name, { count, p50_ms, p99_ms }) {
  return count ? tile(name, `${short(p50_ms)} ms`, `p99 ${short(p99_ms)}`) : tile(name, "–");
}

function drawTiles({ running, waiting, swapped, preparing, queued_tokens, step, drafts, preemptions, refused, last_minute, model }) {
  view.tiles.replaceChildren(
    tile("Running", running), tile("Waiting", waiting, queued_tokens ? `${queued_tokens} tokens` : ""), tile("Swapped", swapped),
    tile("Preparing", preparing), tile("Rows of a step", short(step.rows ?? 0)),
    latency("First token, p50", last_minute.first_token), latency("Next token, p50", last_minute.inter_token),
    tile("Refused", refused), tile("Preempted", preemptions),
    tile("Drafts accepted", drafts.verified ? `${((100 * drafts.accepted) / drafts.verified).toFixed(0)} %` : "–"),
    ...(model === "loaded" ? [] : [tile("Model", model)]));
}

function drawBlocks(blocks, host) {
  view.cells.draw(blocks, host);
  const names = [["used", "c0"], ["cached", "c1"], ["free", "cf"]];
  view.legend.replaceChildren(...names.map(([name, kind]) => h("li", { class: kind }, `${blocks[name]} ${name}`)));
  view.host.textContent = `${blocks.total} blocks of ${blocks.size} tokens` +
    (host.total ? `; in the host's memory ${host.used} swapped and ${host.cached} cached of ${host.total}` : "");
}

function sequenceRow({ id, choice, state, prompt, computed, output, cached, blocks, age_s }) {
  const name = choice ? `${id} #${choice}` : id;
  return h("tr", {}, h("td", {}, h("code", {}, name)), h("td", {}, state),
    h("td", {}, h("progress", { max: prompt, value: computed, "aria-label": `Prompt of ${name}` }), `${computed} / ${prompt}`),
    h("td", {}, output), h("td", {}, cached), h("td", {}, blocks), h("td", {}, `${age_s.toFixed(1)} s`));
}

function captionOf({ sequences, listed, running, waiting, swapped }) {
  const all = running + waiting + swapped;
  if (!sequences) return "With keys, only an admin key shows the sequences; a key with a name shows its own.";
  if (listed === "own") return sequences.length ? `Those of your key: ${sequences.length}` : "No sequence of your key runs or waits.";
  if (!sequences.length) return "No sequence runs or waits.";
  return sequences.length < all ? `${sequences.length} of ${all}` : "";
}

function drawSequences(live) {
  const { sequences } = live;
  view.table.hidden = !sequences?.length;
  view.rows.replaceChildren(...(sequences ?? []).map(sequenceRow));
  view.caption.textContent = captionOf(live);
}

function draw(live) {
  if (isPaused) return;
  drawTiles(live);
  drawBlocks(live.blocks, live.host_blocks);
  drawSequences(live);
  const { step } = live;
  if (!step.ms) return; // the first snapshot has no rates
  view.speed.add([step.tokens_per_s, step.prompt_tokens_per_s]);
  view.steps.add(PARTS.map((part) => step.ms[part]));
}

// ---- watching ----

function say(text) {
  view.problem.hidden = !text;
  if (text && view.problem.textContent !== text) announce(text);
  view.problem.textContent = text;
}

const pauseFor = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function watch(controller) {
  while (!controller.signal.aborted) {
    try {
      const response = await request("penstock/live", { signal: controller.signal, accept: "text/event-stream" });
      say("");
      for await (const data of events(response)) draw(JSON.parse(data));
      say("The server ended the stream. Trying again.");
    } catch (error) {
      if (error.name === "AbortError") return;
      say(`${error.message} Trying again.`);
    }
    await pauseFor(RETRY_MS);
  }
}

export function showLive() {
  view ??= makeView();
  if (watching) return;
  watching = new AbortController();
  watch(watching);
}

export function hideLive() {
  watching?.abort();
  watching = null;
}
