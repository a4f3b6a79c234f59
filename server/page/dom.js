// Elements, dialogs and announcements. Text becomes text nodes only, so nothing that a model or a
// file says can become an element.

function fill(element, props, kids) {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...kids.flat().filter((kid) => kid != null));
  return element;
}

export const h = (tag, props = {}, ...kids) => fill(document.createElement(tag), props, kids);

export const svg = (tag, props = {}, ...kids) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, kids);

export const $ = (id) => document.getElementById(id);

export const button = (text, onclick, props = {}) => h("button", { type: "button", onclick, ...props }, text);

// Says a text to screen readers after what they say now.
export function announce(text) {
  const log = $("announcer");
  log.append(h("p", {}, text));
  while (log.children.length > 20) log.firstChild.remove();
}

// Announces a growing text sentence by sentence.
export class Sentences {
  constructor() {
    this.said = 0;
  }

  grow(text, ended) {
    const rest = text.slice(this.said);
    const ends = [...rest.slice(-2000).matchAll(/[.!?:。！？]["')\]]*\s|\n/g)];
    const skipped = Math.max(0, rest.length - 2000);
    const last = ends.length ? skipped + ends.at(-1).index + ends.at(-1)[0].length : 0;
    const n = ended ? rest.length : last;
    if (n === 0) return;
    this.said += n;
    const part = rest.slice(0, n).trim();
    if (part) announce(part.slice(0, 2000));
  }
}

// Shows a modal dialog; `build(close)` makes its content. Resolves with what `close` gets, or with
// undefined after Escape.
export function dialog(title, build) {
  return new Promise((resolve) => {
    const box = h("dialog", { "aria-label": title });
    const close = (value) => {
      box.returned = value;
      box.close();
    };
    box.append(h("h2", {}, title), ...build(close));
    box.addEventListener("close", () => {
      box.remove();
      resolve(box.returned);
    });
    document.body.append(box);
    box.showModal();
  });
}

export const confirmed = (title, text, act) =>
  dialog(title, (close) => [
    h("p", {}, text),
    h("div", { class: "row end" }, button("Cancel", () => close(false)), button(act, () => close(true), { class: "danger" })),
  ]);

export function copyButton(text) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text());
      copy.textContent = "Copied";
      announce("Copied");
    } catch {
      copy.textContent = "The browser refuses to copy";
    }
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  });
  return copy;
}

export function saveFile(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
