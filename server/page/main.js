// Starts the page: the model's names, the panels, the chat.
import { json } from "./api.js";
import { $, announce, h } from "./dom.js";
import { openChat } from "./chat.js";
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

async function start() {
  panel("history");
  panel("settings");
  const isKept = await openStore();
  await drawModels().catch((error) => say(error.message));
  await openSettings();
  await openChat();
  if (!isKept) say("This browser keeps nothing for this page: conversations end with the tab.");
  $("input").focus();
  document.body.dataset.ready = "true";
}

start();
