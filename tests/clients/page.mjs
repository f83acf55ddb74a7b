// The chat page, the status page and the guide in a real browser, against servers with the demo model.
//
//     node page.mjs BINARY [NAME...]
//
// Needs `puppeteer-core`, `axe-core` and `@modelcontextprotocol/server-everything` from the working
// directory, and a Chromium at $CHROMIUM or /usr/bin/chromium. With names, only the groups of checks
// that are called so.

import { checks, launch, Server } from "./page_support.mjs";
import { access } from "./page_access.mjs";
import { conversations } from "./page_conversations.mjs";
import { docs } from "./page_docs.mjs";
import { states } from "./page_states.mjs";
import { status } from "./page_status.mjs";
import { tools } from "./page_tools.mjs";

const [binary, ...wanted] = process.argv.slice(2);
const groups = { conversations, states, tools, status, docs, access };

const server = await Server.start(binary);
const browser = await launch();
console.log(`  ${await browser.version()}`);
try {
  for (const [name, run] of Object.entries(groups)) {
    if (wanted.length === 0 || wanted.includes(name)) await run({ browser, binary, server });
  }
  if (server.log.includes("panicked")) {
    checks.failed += 1;
    console.log(`FAILED the server wrote a panic into its log\n${server.log}`);
  }
} finally {
  await browser.close();
  await server.kill();
}
console.log(`${checks.passed} passed, ${checks.failed} failed`);
process.exit(checks.failed > 0 || checks.passed === 0 ? 1 : 0);
