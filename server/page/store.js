// Conversations, in this browser only: IndexedDB, or the tab's memory if that is refused.

const NAME = "penstock", TABLE = "conversations";
const memory = new Map();
let database = null;

const settled = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

// Resolves with false if conversations will not outlive the tab.
export async function openStore() {
  try {
    const opening = indexedDB.open(NAME, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE, { keyPath: "id" });
    database = await settled(opening);
    return true;
  } catch {
    return false;
  }
}

const table = (mode) => database.transaction(TABLE, mode).objectStore(TABLE);

// Resolves with all conversations, the newest first.
export async function allConversations() {
  const all = database ? await settled(table("readonly").getAll()) : [...memory.values()];
  return all.sort((a, b) => b.updated - a.updated);
}

export async function saveConversation(conversation) {
  const copy = structuredClone(conversation);
  if (database) await settled(table("readwrite").put(copy));
  else memory.set(copy.id, copy);
}

export async function removeConversation(id) {
  if (database) await settled(table("readwrite").delete(id));
  else memory.delete(id);
}

export async function removeAll() {
  if (database) await settled(table("readwrite").clear());
  else memory.clear();
}

export const newConversation = () => ({
  id: Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join(""),
  title: "New conversation",
  created: Date.now(),
  updated: Date.now(),
  system: "",
  messages: [],
});

const ROLES = ["user", "assistant", "tool"];
const textOf = (value) => (typeof value === "string" ? value : "");

function readMessage(from) {
  if (!ROLES.includes(from?.role)) throw new Error("a message has an unknown role");
  const message = { role: from.role, content: textOf(from.content), reasoning: textOf(from.reasoning) };
  if (from.role === "tool") message.tool_call_id = textOf(from.tool_call_id);
  if (Array.isArray(from.tool_calls) && from.tool_calls.length) {
    message.tool_calls = from.tool_calls.map((call) => ({
      id: textOf(call?.id), type: "function",
      function: { name: textOf(call?.function?.name), arguments: textOf(call?.function?.arguments) },
    }));
  }
  return message;
}

// Reads an exported file. Throws an Error with the problem.
export function readExport(text) {
  const file = JSON.parse(text);
  if (!Array.isArray(file?.conversations)) throw new Error("it has no list of conversations");
  return file.conversations.map((from) => ({
    ...newConversation(),
    title: textOf(from?.title).slice(0, 200) || "Imported",
    system: textOf(from?.system),
    messages: (Array.isArray(from?.messages) ? from.messages : []).map(readMessage),
  }));
}
