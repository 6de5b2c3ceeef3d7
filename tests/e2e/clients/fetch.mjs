// Node's own fetch, and undici over HTTP/2.
import { createRequire } from "node:module";
const require = createRequire(process.argv[2] + "/");
const url = "https://web.clients.example";

async function check(name, get) {
  const hello = await (await get(`${url}/hello`)).json();
  const body = "y".repeat(1 << 20);
  const sent = await (await get(`${url}/sum`, { method: "POST", body })).json();
  if (hello.hello !== "web.clients.example" || sent.length !== 1 << 20) {
    throw new Error(`${name}: ${JSON.stringify([hello, sent])}`);
  }
  console.log(name, "ok");
}

await check("fetch", fetch);
if (process.argv[2]) {
  const undici = require("undici");
  const dispatcher = new undici.Agent({ allowH2: true });
  await check("undici", (to, more) => undici.fetch(to, { ...more, dispatcher }));
}
process.exit(0);
