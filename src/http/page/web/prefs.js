// What the page remembers about itself: theme, API key, settings of new conversations, MCP servers.

const PREFIX = "sconce.";

// What was stored under a name, or the fallback; a browser without storage forgets.
export function recall(name, fallback) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

// Whether it could be stored; null forgets.
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

let keyInMemory = null;

// The API key: of this tab, or of this browser if the user wanted that.
export function apiKey() {
  try {
    return sessionStorage.getItem(`${PREFIX}key`) ?? recall("key", null) ?? keyInMemory;
  } catch {
    return keyInMemory;
  }
}

export function setApiKey(key, keep) {
  keyInMemory = key;
  try {
    sessionStorage.removeItem(`${PREFIX}key`);
    remember("key", keep ? key : null);
    if (key !== null && !keep) sessionStorage.setItem(`${PREFIX}key`, key);
  } catch {
    // Then it lives as long as the page.
  }
}

// "light", "dark" or "auto", which is what the system prefers.
export function theme() {
  return recall("theme", "auto");
}

export function isDark() {
  const wanted = theme();
  return wanted === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : wanted === "dark";
}

export function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

export function toggleTheme() {
  const wanted = isDark() ? "light" : "dark";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  remember("theme", wanted === system ? "auto" : wanted);
  applyTheme();
}

applyTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
