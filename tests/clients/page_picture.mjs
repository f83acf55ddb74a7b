// Makes the picture of the page that the README shows, of the real server and its demo model.
//
//   node page_picture.mjs BINARY OUT.png
//
// Needs `puppeteer-core` in the working directory and Chromium.

import { launch, Server, Tab } from "./page_support.mjs";

const VIEW = { width: 1120, height: 720 };

const [binary, out] = process.argv.slice(2);
const server = await Server.start(binary);
const browser = await launch();
try {
  const tab = await (await Tab.open(browser, server.url, { viewport: VIEW })).ready();
  await tab.page.click("#settings");
  await tab.page.click("#set-logprobs");
  await tab.page.keyboard.press("Escape");
  for (const message of ["What is 12 plus 7?", "Tell me a story about a lamp."]) {
    await tab.send(message);
    await tab.answered();
  }
  await tab.click("Show probabilities");
  await tab.page.focus(".heat-text");
  // The first token that could well have been another one.
  do await tab.page.keyboard.press("ArrowRight");
  while (/ (9\d\.\d|100\.0) %/.test((await tab.text(".heat-details p"))[0]));
  await tab.page.screenshot({ path: out });
  await tab.close();
} finally {
  await browser.close();
  await server.kill();
}
