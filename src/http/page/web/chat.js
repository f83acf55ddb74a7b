// The chat page: which conversation is open, and what happens when something is sent.

import { answer, goOn } from "./answering.js";
import { callJson } from "./api.js";
import { Composer, editor } from "./composer.js";
import { lost, onReturn } from "./connection.js";
import { Conversation, toExport } from "./conversation.js";
import { announce, banner, byId, closeBanner, download, h } from "./dom.js";
import { recall, remember, toggleTheme } from "./prefs.js";
import { defaults, openKeys, openSettings, showSummary } from "./settings.js";
import { Sidebar, tellStorage, wireDrawer } from "./sidebar.js";
import * as store from "./store.js";
import { Thread } from "./thread.js";
import { connectAll, definitions, runTool } from "./tools.js";

// The conversation that is shown; its record exists before its first message does.
let current = null;
let models = [];
// Conversations that are being answered: id -> { conversation, controller }.
const live = new Map();

const isLive = () => live.has(current.id);
const liveMessage = (message) => live.get(message.conversation)?.message === message;

const thread = new Thread({
  regenerate: (message) => regenerate(message),
  goOn: (message) => run(current, (signal, watcher) => goOn(current, message, signal, watcher), message),
  edit: (message) => edit(message),
  showBranch(message) {
    if (isLive()) return;
    current.select(message);
    save(current);
    showThread();
  },
});
const composer = new Composer({ send, stop, editLast });
const sidebar = new Sidebar({
  current: () => current?.id,
  async renamed(record) {
    if (record.id === current.id) current.record.title = record.title;
    const running = live.get(record.id);
    if (running) running.conversation.record.title = record.title;
    await store.saveConversation(record).catch(storageFailed);
    showHeader();
  },
  async deleted(id) {
    live.get(id)?.controller.abort();
    remember(`draft.${id}`, null);
    if (id === current.id) newConversation();
  },
});
const closeDrawer = wireDrawer();

function showThread() {
  thread.show(current, liveMessage);
  composer.setLive(isLive());
  showHeader();
}

function showHeader() {
  document.title = current.record.title ? `${current.record.title} · sconce` : "sconce";
  byId("title").textContent = current.record.title || "New conversation";
  showSummary(current.record);
  showModels();
  showContext();
}

// How much of the model's context the conversation fills, as of the last answer.
function showContext() {
  const last = current.path().findLast(({ stats }) => stats?.prompt !== undefined);
  const limit = models.find(({ id }) => id === current.record.model)?.max_model_len;
  const used = last && last.stats.prompt + (last.stats.tokens ?? 0);
  byId("context").textContent = used && limit ? `${used.toLocaleString("en")} of ${limit.toLocaleString("en")} tokens of context` : "";
}

function showModels() {
  const select = byId("model");
  const wanted = current.record.model;
  const names = models.map(({ id }) => id);
  if (wanted && !names.includes(wanted)) names.push(wanted);
  select.replaceChildren(...names.map((id) => h("option", { value: id }, models.some((one) => one.id === id) ? id : `${id} (not served)`)));
  select.value = wanted;
}

async function loadModels() {
  try {
    models = (await callJson("/v1/models")).data;
    closeBanner("models");
  } catch (error) {
    if (error.kind === "offline") lost();
    else banner("models", `The list of models can't be read: ${error.message}`);
    return;
  }
  const preferred = recall("model", null);
  const known = models.some(({ id }) => id === preferred) ? preferred : models[0]?.id;
  // What was chosen for a conversation stays, unless nothing has been said in it.
  if (!current.record.model || (current.messages.size === 0 && !models.some(({ id }) => id === current.record.model))) {
    current.record.model = known ?? "";
  }
  showHeader();
}

function newConversation() {
  if (location.hash !== "") history.pushState(null, "", location.pathname);
  return open(null);
}

// The field has the focus before anything is read from the database: what is typed at once belongs there.
function beginNew() {
  newConversation();
  closeDrawer();
  composer.input.focus();
}

async function open(id) {
  const found = id && (live.get(id)?.conversation ?? await load(id));
  if (id && !found) {
    banner("missing", "That conversation is not in this browser.");
    history.replaceState(null, "", location.pathname);
  }
  const { settings, system } = defaults();
  current = found || Conversation.create(recall("model", models[0]?.id ?? ""), settings, system);
  if (!found && models.length > 0 && !models.some((one) => one.id === current.record.model)) current.record.model = models[0].id;
  showThread();
  thread.scrollToEnd(true);
  await composer.open(found ? current.id : null);
  await sidebar.refresh();
}

async function load(id) {
  const record = await store.loadConversation(id);
  return record && new Conversation(record, await store.loadMessages(id));
}

function storageFailed(error) {
  tellStorage(error, () => download("sconce-conversation.json", "application/json", toExport([current])));
}

async function save(conversation, ...messages) {
  try {
    for (const message of messages) await store.saveMessage(message);
    await store.saveConversation(conversation.record);
    closeBanner("storage");
  } catch (error) {
    storageFailed(error);
  }
}

// Whether it was sent: then the field is emptied.
async function send(text, attachments) {
  if (!current.record.model) {
    composer.say("There is no model to send this to.");
    loadModels();
    return false;
  }
  const conversation = current;
  ask(conversation, conversation.path().at(-1)?.id ?? null, text, attachments);
  return true;
}

function ask(conversation, parent, text, attachments) {
  const isFirst = conversation.messages.size === 0;
  const message = conversation.append(parent, { role: "user", text, attachments });
  if (isFirst) {
    history.pushState(null, "", `#${conversation.id}`);
    composer.clear();
    composer.draft = conversation.id;
  }
  const saved = save(conversation, message).then(() => sidebar.refresh());
  thread.scrollToEnd(true);
  run(conversation, (signal, watcher) => answer(conversation, signal, watcher));
  return saved;
}

function regenerate(message) {
  if (isLive()) return;
  current.record.leaf = message.parent;
  run(current, (signal, watcher) => answer(current, signal, watcher));
}

function edit(message) {
  if (isLive()) return;
  const view = thread.view(message);
  const restore = () => {
    form.remove();
    view.element.classList.remove("editing");
    composer.input.focus();
  };
  const form = editor(message.text, (text) => {
    restore();
    ask(current, message.parent, text, message.attachments ?? []);
  }, restore);
  view.element.classList.add("editing");
  view.element.append(form);
}

function editLast() {
  const last = current.path().findLast(({ role }) => role === "user");
  if (last) edit(last);
}

function stop() {
  live.get(current.id)?.controller.abort();
}

// Runs `work`, which answers a conversation, until it ends or is stopped.
async function run(conversation, work, message = null) {
  if (live.has(conversation.id)) return;
  const controller = new AbortController();
  const running = { conversation, controller, message };
  live.set(conversation.id, running);
  if (conversation === current) showThread();
  announce("Waiting for the answer");
  try {
    await work(controller.signal, watcherOf(running));
  } finally {
    live.delete(conversation.id);
    await save(conversation);
    await sidebar.refresh();
    if (conversation === current) showThread();
    const last = conversation.path().at(-1);
    announce(last.error ? `The answer failed. ${last.error.message}` : "The answer is complete");
  }
}

function watcherOf(running) {
  const { conversation, controller } = running;
  const isShown = () => conversation === current;
  return {
    tools: definitions,
    added(message) {
      running.message = message.role === "assistant" ? message : null;
      save(conversation);
      if (isShown()) showThread();
    },
    changed(message) {
      const isDone = message.error !== undefined || message.finish !== null;
      if (isDone && running.message === message && message.stats) running.message = null;
      if (message.error?.kind === "offline") lost();
      if (isShown()) thread.changed(message, liveMessage(message));
    },
    saved(error) {
      if (error) storageFailed(error);
    },
    waiting(message, seconds) {
      if (isShown()) thread.view(message)?.showWaiting(seconds, () => controller.abort());
    },
    runTool(message, call, signal) {
      const place = isShown() ? thread.view(message)?.consent : null;
      // Consent is asked for where the user can see it.
      return runTool(call, place ?? byId("banners"), signal);
    },
  };
}

function onKey(event) {
  const control = event.ctrlKey || event.metaKey;
  const inField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  const key = event.key.toLowerCase();
  if (document.querySelector("dialog[open]")) return;
  const actions = [
    [key === "escape" && isLive(), stop],
    [control && event.shiftKey && key === "o", beginNew],
    [control && key === "k", () => focusSearch()],
    [control && key === ",", settingsDialog],
    [!control && !inField && key === "/", () => composer.input.focus()],
    [!control && !inField && key === "?", openKeys],
  ];
  const found = actions.find(([applies]) => applies);
  if (found === undefined) return;
  event.preventDefault();
  found[1]();
}

function focusSearch() {
  document.body.classList.add("drawer-open");
  byId("search").focus();
}

async function settingsDialog() {
  const conversation = current;
  const changed = () => {
    showSummary(conversation.record);
    if (conversation.messages.size > 0) save(conversation);
  };
  await openSettings(conversation.record, changed);
}

function wire() {
  byId("new").addEventListener("click", beginNew);
  byId("settings").addEventListener("click", settingsDialog);
  byId("theme").addEventListener("click", toggleTheme);
  byId("keys").addEventListener("click", openKeys);
  byId("model").addEventListener("change", (event) => {
    current.record.model = event.target.value;
    remember("model", event.target.value);
    if (current.messages.size > 0) save(current);
    showContext();
  });
  byId("examples").addEventListener("click", (event) => {
    const example = event.target.closest("button");
    if (example) send(example.textContent, []);
  });
  addEventListener("keydown", onKey);
  addEventListener("hashchange", () => open(location.hash.slice(1) || null));
  addEventListener("popstate", () => location.hash === "" && open(null));
  addEventListener("storage", (event) => event.key === "sconce.theme" && location.reload());
  onReturn(loadModels);
  store.onOtherTab(({ changed, deleted }) => {
    sidebar.refresh();
    if (changed === current.id && !isLive()) load(changed).then((found) => found && !isLive() && (current = found, showThread()));
    if (deleted === current.id) newConversation();
  });
}

async function start() {
  wire();
  if (!(await store.openStore())) {
    banner("storage", "This browser gives the page no database (a private window, perhaps): conversations are lost when it closes.");
  }
  await open(location.hash.slice(1) || null);
  composer.input.focus();
  document.body.classList.add("ready");
  connectAll();
  await loadModels();
}

await start();
