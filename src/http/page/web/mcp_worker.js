// The requests of an MCP client. This worker was served with a policy of its own, which lets it reach
// the one origin in its address; it knows neither the API key nor conversations.

let session = null;
let protocol = null;
let target = null;

onmessage = async ({ data }) => {
  if (data.protocol) protocol = data.protocol;
  else if (data.close) goodbye();
  else await send(data);
};

async function send({ post, ticket, url, token }) {
  target = { url: url ?? target.url, token: token ?? target?.token };
  try {
    const response = await fetch(target.url, {
      method: "POST", body: JSON.stringify(post), credentials: "omit", redirect: "error",
      headers: { ...headers(), "content-type": "application/json", accept: "application/json, text/event-stream" },
    });
    session = response.headers.get("mcp-session-id") ?? session;
    if (!response.ok) throw new Error(await refusal(response));
    postMessage({ ticket });
    await receive(response, post.id);
  } catch (error) {
    postMessage({ ticket, error: error instanceof TypeError ? unreachable() : error.message });
  }
}

function headers() {
  return {
    ...(session && { "mcp-session-id": session }),
    ...(protocol && { "mcp-protocol-version": protocol }),
    ...(target.token && { authorization: `Bearer ${target.token}` }),
  };
}

async function refusal(response) {
  const text = await response.text().catch(() => "");
  let message = text.slice(0, 200);
  try {
    message = JSON.parse(text).error?.message ?? message;
  } catch {
    // Not every server answers JSON.
  }
  return `The MCP server answered ${response.status}${message && `: ${message}`}`;
}

// Browsers don't tell a page which of these it was.
function unreachable() {
  const { origin } = self.location;
  return `${new URL(target.url).host} can't be reached: it is not running, or it does not allow pages from ${origin} (CORS).`;
}

// Reads what a request is answered with. A stream is left when the answer has come: a browser has few
// connections to a server, and some servers keep theirs open.
async function receive(response, id) {
  const type = response.headers.get("content-type") ?? "";
  if (type.startsWith("application/json")) {
    const answer = await response.json();
    for (const message of [answer].flat()) postMessage({ message });
    return;
  }
  if (!type.startsWith("text/event-stream")) {
    await response.text();
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length === 0 || data[0] === "") continue;
      const message = JSON.parse(data.join("\n"));
      postMessage({ message });
      if (message.id === id && message.method === undefined) return void reader.cancel();
    }
  }
}

function goodbye() {
  if (session !== null) fetch(target.url, { method: "DELETE", headers: headers(), credentials: "omit" }).catch(() => {});
}
