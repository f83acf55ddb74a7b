// One message as it is shown: text, reasoning, tool calls, errors, figures, and what can be done with it.

import { AnswerView } from "./answer_view.js";
import { CodeView } from "./code_view.js";
import { add, button, copy, h, icon, iconButton } from "./dom.js";
import { HeatView } from "./heat.js";

const NAMES = { user: "You", assistant: "Assistant", tool: "Tool result" };

export class MessageView {
  // actions: regenerate, goOn, edit, showBranch, all functions of a message.
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.element = h("article", { class: `message ${message.role}`, "aria-label": NAMES[message.role], "data-id": message.id });
    this.body = h("div", { class: "body" });
    this.notice = h("div", { class: "notice" });
    this.foot = h("footer", { class: "foot" });
    if (message.role === "assistant") this.buildAnswer();
    else if (message.role === "tool") this.buildResult();
    else this.buildQuestion();
    add(this.element, [this.body, this.notice, this.foot]);
  }

  buildQuestion() {
    const { text, attachments = [] } = this.message;
    const shown = attachments.map((one) => (one.kind === "image"
      ? h("img", { src: one.data, alt: one.name, class: "picture" })
      : h("details", { class: "file" }, h("summary", {}, icon("file"), one.name), h("pre", { tabindex: "0" }, one.data))));
    add(this.body, [shown.length > 0 && h("div", { class: "attachments" }, ...shown), text !== "" && h("div", { class: "plain" }, text)]);
  }

  buildResult() {
    const { name, text, images = [], failed } = this.message;
    const pictures = images.map(({ data }) => h("img", { src: data, alt: `Picture from ${name}`, class: "picture" }));
    const summary = h("summary", {}, icon(failed ? "warning" : "plug"), `${failed ? "No result" : "Result"} of ${name}`);
    add(this.body, [h("details", { class: "tool", open: failed }, summary, h("pre", { tabindex: "0" }, text), ...pictures)]);
  }

  buildAnswer() {
    this.reasoningText = h("div", { class: "plain" });
    this.reasoningTitle = h("span", {}, "Reasoning");
    this.reasoning = h("details", { class: "reasoning", hidden: true },
      h("summary", {}, this.reasoningTitle), this.reasoningText);
    this.content = h("div", { class: "markdown" });
    this.view = new AnswerView(this.content);
    this.calls = h("div", { class: "calls" });
    this.consent = h("div", {});
    this.working = h("div", { class: "working", hidden: true }, h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i")),
      h("span", { class: "hidden-visually" }, "Waiting for the first words"));
    add(this.body, [this.reasoning, this.working, this.content, this.calls, this.consent]);
  }

  // Shows the message as it is now; `live` while it is being written.
  update(live, siblings) {
    if (this.message.role === "assistant") this.updateAnswer(live);
    if (!live || this.foot.childNodes.length > 0) this.updateFoot(live, siblings);
  }

  updateAnswer(live) {
    const { text, reasoning, toolCalls = [], format } = this.message;
    this.element.setAttribute("aria-busy", String(live));
    this.element.classList.toggle("live", live);
    this.reasoning.hidden = !reasoning;
    if (reasoning && this.reasoningText.textContent.length !== reasoning.length) growText(this.reasoningText, reasoning);
    this.reasoningTitle.textContent = live && text === "" ? "Reasoning…" : "Reasoning";
    this.working.hidden = !(live && text === "" && toolCalls.length === 0 && !reasoning);
    if (format && format !== "text") this.updateJson(text, !live);
    else if (text !== "" || this.view.text !== "") this.view.update(text, !live);
    // What was unfolded stays so while nothing is added.
    const calls = JSON.stringify(toolCalls);
    if (calls !== (this.shownCalls ?? "[]")) this.calls.replaceChildren(...toolCalls.map(callCard));
    this.shownCalls = calls;
    this.notice.replaceChildren(...(live ? [] : this.problems()));
  }

  updateJson(text, done) {
    if (this.json === undefined) {
      this.json = new CodeView("json");
      this.content.append(this.json.element);
    }
    this.json.element.hidden = text === "";
    this.json.update(done ? pretty(text) : text, done);
    this.content.dispatchEvent(new CustomEvent("drawn", { bubbles: true }));
  }

  // What went wrong, and what to do about it.
  problems() {
    const { message, actions } = this;
    const { error, finish, text, toolCalls = [] } = message;
    const again = () => button("Try again", () => actions.regenerate(message));
    const onward = () => text !== "" && button("Continue", () => actions.goOn(message));
    if (error) {
      const hint = HINTS[error.kind];
      return [problem(error.message, hint, again(), (error.kind === "cut" || error.kind === "server") && onward())];
    }
    if (finish === null) return [problem("This answer was interrupted.", "The page was closed or reloaded.", again(), onward())];
    if (finish === "length") return [problem("The answer reached the limit of tokens.", null, onward())];
    if (text.trim() === "" && toolCalls.length === 0 && finish !== "stopped") {
      return [problem("The model answered nothing.", `It ended its answer at once (${finish}).`, again())];
    }
    return finish === "stopped" ? [h("p", { class: "quiet" }, "You stopped this answer. ", onward())] : [];
  }

  // A wait before the next try.
  showWaiting(seconds, stop) {
    this.working.hidden = true;
    this.notice.replaceChildren(problem(this.message.error.message, `Trying again in ${seconds} s.`, button("Stop waiting", stop)));
  }

  updateFoot(live, siblings) {
    this.foot.replaceChildren();
    if (live) return;
    const { message, actions } = this;
    const tools = h("div", { class: "tools" });
    const copyButton = iconButton("copy", "Copy", () => copy(message.text, copyButton));
    if (message.role !== "tool" && message.text !== "") tools.append(copyButton);
    if (message.role === "user") tools.append(iconButton("edit", "Edit", () => actions.edit(message)));
    if (message.role === "assistant") {
      tools.append(iconButton("refresh", "Regenerate", () => actions.regenerate(message)));
      if (message.logprobs?.length) {
        const toggle = iconButton("heat", "Show probabilities", () => this.toggleHeat(toggle), { "aria-pressed": String(this.heat !== undefined) });
        tools.append(toggle);
      }
    }
    if (siblings.length > 1) tools.append(this.branches(siblings));
    this.foot.append(tools);
    if (message.role === "assistant") this.foot.append(h("div", { class: "figures" }, figures(message)));
  }

  branches(siblings) {
    const at = siblings.indexOf(this.message);
    const step = (name, label, to) => iconButton(name, label, () => this.actions.showBranch(siblings[to]), { disabled: siblings[to] === undefined });
    return h("span", { class: "branches", role: "group", "aria-label": "Branches" },
      step("back", "Previous branch", at - 1), h("span", {}, `${at + 1} / ${siblings.length}`), step("forward", "Next branch", at + 1));
  }

  toggleHeat(toggle) {
    if (this.heat === undefined) {
      this.heat = new HeatView(this.message.logprobs);
      this.content.after(this.heat.element);
    } else {
      this.heat.element.remove();
      this.heat = undefined;
    }
    const isShown = this.heat !== undefined;
    this.content.hidden = isShown;
    toggle.setAttribute("aria-pressed", String(isShown));
    toggle.setAttribute("aria-label", isShown ? "Show the answer" : "Show probabilities");
    toggle.title = toggle.getAttribute("aria-label");
  }
}

// A text node that grows is cheaper than one that is replaced.
function growText(element, text) {
  const node = element.firstChild;
  if (node !== null && text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else element.textContent = text;
}

const HINTS = {
  offline: "Your message is kept. It can be sent again when the server is back.",
  busy: "The server still had no room after several tries.",
  context: "Edit the message, take something out of it, or start a new conversation.",
  cut: "What had arrived is kept.",
};

function problem(text, hint, ...actions) {
  return h("div", { class: "problem", role: "alert" }, icon("warning"),
    h("div", {}, h("p", {}, text), hint && h("p", { class: "hint" }, hint)),
    h("div", { class: "actions" }, ...actions));
}

function callCard({ name, arguments: given }) {
  const code = new CodeView("json");
  code.update(pretty(given), true);
  return h("details", { class: "tool" }, h("summary", {}, icon("plug"), `Call of ${name}`), code.element);
}

export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const number = new Intl.NumberFormat("en");

// "sconce-demo · 42 tokens · 38.1 tokens/s · first token after 0.21 s · 118 of 240 prompt tokens cached"
function figures({ model, stats }) {
  const parts = [model];
  if (stats?.tokens !== undefined) parts.push(`${number.format(stats.tokens)} ${stats.tokens === 1 ? "token" : "tokens"}`);
  if (stats?.rate) parts.push(`${stats.rate >= 100 ? number.format(Math.round(stats.rate)) : stats.rate.toFixed(1)} tokens/s`);
  if (stats?.firstToken !== undefined) parts.push(`first token after ${(stats.firstToken / 1000).toFixed(2)} s`);
  if (stats?.prompt !== undefined) parts.push(`${number.format(stats.cached ?? 0)} of ${number.format(stats.prompt)} prompt tokens cached`);
  if (stats?.reasoning) parts.push(`${number.format(stats.reasoning)} for reasoning`);
  return parts.filter(Boolean).join(" · ");
}
