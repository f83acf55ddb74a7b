// Whether the server is there. When it went away it is asked every few seconds until it is back.

import { announce, banner, button, closeBanner } from "./dom.js";

const EVERY = 2000;

let timer = null;
const returned = new Set();

export const onReturn = (callback) => returned.add(callback);

// Called whenever a request could not reach the server.
export function lost() {
  if (timer !== null) return;
  banner("offline", "The server can't be reached. This page tries again every two seconds; nothing you wrote is lost.",
    button("Try now", () => check()));
  timer = setInterval(check, EVERY);
}

async function check() {
  const isBack = await fetch("/health", { cache: "no-store" }).then((response) => response.ok, () => false);
  if (!isBack || timer === null) return;
  clearInterval(timer);
  timer = null;
  closeBanner("offline");
  announce("The server is back");
  for (const callback of returned) callback();
}

addEventListener("offline", lost);
