// The messages of the open conversation, and where the page is scrolled to.

import { byId } from "./dom.js";
import { MessageView } from "./message_view.js";

// So near its end, a page that grows is scrolled along.
const NEAR = 80;

export class Thread {
  constructor(actions) {
    this.actions = actions;
    this.views = new Map();
    this.scroller = byId("scroller");
    this.list = byId("thread");
    this.toEnd = byId("to-end");
    this.follows = true;
    let before = 0;
    this.scroller.addEventListener("scroll", () => {
      // Only who scrolls up wants to stay there; a page that grows moves the end away as well.
      const isUp = this.scroller.scrollTop < before - 1;
      before = this.scroller.scrollTop;
      if (this.distance() < NEAR) this.follows = true;
      else if (isUp) this.follows = false;
      this.toEnd.hidden = this.follows || this.distance() < NEAR;
    }, { passive: true });
    this.toEnd.addEventListener("click", () => this.scrollToEnd(true));
    this.list.addEventListener("drawn", () => this.scrollToEnd(false));
    new ResizeObserver(() => this.scrollToEnd(false)).observe(this.list);
  }

  distance() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  scrollToEnd(always) {
    if (always) this.follows = true;
    if (this.follows) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  // Shows a conversation; `isLive` tells which messages are being written.
  show(conversation, isLive) {
    this.conversation = conversation;
    this.isLive = isLive;
    const path = conversation?.path() ?? [];
    const old = this.views;
    this.views = new Map();
    for (const message of path) {
      // What stays on the screen is not made again.
      const kept = old.get(message.id);
      const view = kept?.message === message ? kept : new MessageView(message, this.actions);
      this.views.set(message.id, view);
      view.update(isLive(message), conversation.siblings(message));
    }
    // Elements that are taken out and put back would lose the place that was scrolled to.
    const elements = [...this.views.values()].map((view) => view.element);
    for (const element of [...this.list.children]) if (!elements.includes(element)) element.remove();
    elements.forEach((element, index) => {
      if (this.list.children[index] !== element) this.list.insertBefore(element, this.list.children[index] ?? null);
    });
    document.body.classList.toggle("empty", path.length === 0);
  }

  // Shows what became of a message: with the next frame while it is being written, however many pieces
  // of it come until then.
  changed(message, isLive) {
    if (!isLive) {
      this.views.get(message.id)?.update(false, this.conversation.siblings(message));
      return;
    }
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      if (this.isLive(message)) this.views.get(message.id)?.update(true, []);
    });
  }

  view(message) {
    return this.views.get(message.id);
  }
}
