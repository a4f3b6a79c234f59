// Starts the page: the views, the model's names, the panels, the chat.
import { json } from "./api.js";
import { $, announce, h } from "./dom.js";
import { openChat } from "./chat.js";
import { hideLive, showLive } from "./live.js";
import { openSettings } from "./settings.js";
import { openStore } from "./store.js";

function say(text) {
  $("messages").prepend(h("p", { class: "problem" }, text));
  announce(text);
}

async function drawModels() {
  const { data } = await json("v1/models");
  $("model").replaceChildren(...data.map(({ id }) => h("option", { value: id }, id)));
}

// A panel at the side: a column on a wide screen, else a sheet that its button shows.
function panel(name) {
  const show = $(`show-${name}`), side = $(name);
  show.addEventListener("click", () => {
    const isOpen = document.body.classList.toggle(`open-${name}`);
    show.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) side.querySelector("button, textarea")?.focus();
  });
  side.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || show.offsetParent === null) return;
    document.body.classList.remove(`open-${name}`);
    show.setAttribute("aria-expanded", "false");
    show.focus();
  });
}

// ---- tabs: the address names the view, so that it can be kept and shared ----

const VIEWS = ["chat", "live"];

function showView(name) {
  for (const view of VIEWS) {
    const isShown = view === name;
    $(view).hidden = !isShown;
    $(`tab-${view}`).setAttribute("aria-selected", String(isShown));
    $(`tab-${view}`).tabIndex = isShown ? 0 : -1;
  }
  $("tools").hidden = $("model").parentElement.hidden = name !== "chat";
  if (name === "live") showLive();
  else hideLive();
}

function openTabs() {
  const follow = () => showView(location.hash === "#live" ? "live" : "chat");
  const go = (name) => (location.hash = name);
  VIEWS.forEach((name, i) => {
    const tab = $(`tab-${name}`), other = VIEWS[1 - i];
    tab.addEventListener("click", () => go(name));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      go(other);
      $(`tab-${other}`).focus();
    });
  });
  addEventListener("hashchange", follow);
  follow();
}

async function start() {
  openTabs();
  panel("history");
  panel("settings");
  const isKept = await openStore();
  await drawModels().catch((error) => say(error.message));
  await openSettings();
  await openChat();
  if (!isKept) say("This browser keeps nothing for this page: conversations end with the tab.");
  if (!$("chat").hidden) $("input").focus();
  document.body.dataset.ready = "true";
}

start();
