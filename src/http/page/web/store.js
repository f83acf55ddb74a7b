// Conversations in the browser's database. A conversation's messages are records of their own, so that
// an answer that grows writes itself and nothing else. Without a database the page works from memory.
//
// conversation: { id, title, created, updated, model, system, settings, leaf }
// message:      { id, conversation, parent, role, text, created, ... }, see conversation.js

const VERSION = 1;
const STORES = ["conversations", "messages", "drafts"];

let database = null;
const memory = { conversations: new Map(), messages: new Map(), drafts: new Map() };
const channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("sconce") : null;

// Ids work in pages that are no secure context, where `crypto.randomUUID` is missing.
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Opens the database; false if the browser has none for this page.
export async function openStore() {
  try {
    database = await new Promise((resolve, reject) => {
      const request = indexedDB.open("sconce", VERSION);
      request.onupgradeneeded = () => {
        for (const name of STORES) {
          const store = request.result.createObjectStore(name, { keyPath: "id" });
          if (name === "messages") store.createIndex("conversation", "conversation");
        }
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    database.onversionchange = () => database.close();
    return true;
  } catch {
    return false;
  }
}

const settled = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// Runs `work` with the stores; resolves when everything is on disk.
function transact(names, work) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(names, "readwrite");
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error("the database gave up"));
    work(...names.map((name) => transaction.objectStore(name)));
  });
}

const read = (name) => database.transaction(name).objectStore(name);

// Writes one record. Fails with a QuotaExceededError when the storage is full.
async function put(name, record) {
  memory[name].set(record.id, record);
  if (database !== null) await transact([name], (store) => store.put(record));
}

export async function saveConversation(conversation) {
  await put("conversations", conversation);
  channel?.postMessage({ changed: conversation.id });
}

export const saveMessage = (message) => put("messages", message);

// All conversations, the newest change first.
export async function listConversations() {
  const all = database === null ? [...memory.conversations.values()] : await settled(read("conversations").getAll());
  return all.sort((a, b) => b.updated - a.updated);
}

export async function loadConversation(id) {
  if (database === null) return memory.conversations.get(id);
  return settled(read("conversations").get(id));
}

export async function loadMessages(conversation) {
  if (database === null) {
    return [...memory.messages.values()].filter((message) => message.conversation === conversation);
  }
  return settled(read("messages").index("conversation").getAll(conversation));
}

export async function deleteConversation(id) {
  const messages = await loadMessages(id);
  memory.conversations.delete(id);
  for (const message of messages) memory.messages.delete(message.id);
  if (database !== null) {
    await transact(["conversations", "messages", "drafts"], (conversations, store, drafts) => {
      conversations.delete(id);
      drafts.delete(id);
      for (const message of messages) store.delete(message.id);
    });
  }
  channel?.postMessage({ deleted: id });
}

// Writes whole conversations, all or none.
export async function saveAll(conversations, messages) {
  if (database === null) {
    for (const one of conversations) memory.conversations.set(one.id, one);
    for (const one of messages) memory.messages.set(one.id, one);
  } else {
    await transact(["conversations", "messages"], (conversationStore, messageStore) => {
      for (const one of conversations) conversationStore.put(one);
      for (const one of messages) messageStore.put(one);
    });
  }
  channel?.postMessage({ changed: null });
}

// What was attached and not sent yet; the text of a draft is in the local storage.
export const saveDraft = (id, attachments) => put("drafts", { id, attachments });

export async function loadDraft(id) {
  const draft = database === null ? memory.drafts.get(id) : await settled(read("drafts").get(id));
  return draft?.attachments ?? [];
}

// Ids of conversations in which a title or a message has the words, with a piece of the text around
// them. An empty piece means the title.
export async function search(words) {
  const wanted = words.toLowerCase();
  const found = new Map();
  for (const conversation of await listConversations()) {
    if (conversation.title.toLowerCase().includes(wanted)) found.set(conversation.id, "");
  }
  const look = (message) => {
    const at = message.text.toLowerCase().indexOf(wanted);
    if (at < 0 || found.has(message.conversation)) return;
    const begin = Math.max(0, at - 30);
    found.set(message.conversation, (begin > 0 ? "…" : "") + message.text.slice(begin, at + 60).replace(/\s+/g, " "));
  };
  if (database === null) memory.messages.forEach(look);
  else {
    // One by one: pictures and long answers need not be in memory together.
    await new Promise((resolve, reject) => {
      const request = read("messages").openCursor();
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        if (request.result === null) return resolve();
        look(request.result.value);
        request.result.continue();
      };
    });
  }
  return found;
}

// Calls back when another tab changed or deleted a conversation.
export function onOtherTab(callback) {
  if (channel) channel.onmessage = (event) => callback(event.data);
}
