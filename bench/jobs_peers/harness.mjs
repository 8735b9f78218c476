// One side of a measurement of a peer: `node harness.mjs MODULE ROLE URL [ARGUMENT …]`.
// run.py says what the roles do and what they print; pgqueuer_side.py is the same in Python.
import { createInterface } from "node:readline";

const [name, role, url, ...rest] = process.argv.slice(2);
const peer = await import(`./${name}.mjs`);
const POOL = 10; // the default of the driver
const numbers = rest.map(Number);
const payload = (size, sent = 0) => {
  const rest = JSON.stringify({ sent, text: "" }).length;
  return { sent, text: "x".repeat(size - rest) };
};
// CLOCK_MONOTONIC, which all processes of a machine share.
const now = () => Number(process.hrtime.bigint()) / 1e6;
const tell = (value) => console.log(JSON.stringify(value));
const cpu = () => {
  const used = process.cpuUsage();
  return (used.user + used.system) / 1e6;
};

const roles = {
  async prepare() {
    await peer.prepare(url);
  },

  async single(count, size, callers, pool) {
    const client = await peer.connect(url, pool);
    await together(callers, callers, () => client.submit(payload(size)));
    const began = now();
    await together(count, callers, () => client.submit(payload(size)));
    tell({ seconds: (now() - began) / 1000 });
    await client.close();
  },

  async bulk(count, size, chunk) {
    const client = await peer.connect(url, POOL);
    const began = now();
    for (let at = 0; at < count; at += chunk) {
      const length = Math.min(chunk, count - at);
      await client.submitMany(Array.from({ length }, () => payload(size)));
    }
    tell({ seconds: (now() - began) / 1000 });
    await client.close();
  },

  async paced(count, size, perSecond) {
    const client = await peer.connect(url, POOL);
    const began = now();
    const open = [];
    for (let at = 0; at < count; at += 1) {
      const wait = began + (at * 1000) / perSecond - now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      open.push(client.submit(payload(size, now())));
    }
    await Promise.all(open);
    tell({ seconds: (now() - began) / 1000 });
    await client.close();
  },

  async work() {
    const state = { count: 0, first: 0, cpu: 0, delays: [] };
    const handle = (data) => {
      state.first ||= now();
      state.count += 1;
      if (data.sent) state.delays.push(now() - data.sent);
    };
    const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    await peer.connect(url, POOL).then((client) => client.close()); // everything is loaded
    tell({ cpu: cpu() });
    await lines.next();
    const stop = await peer.work(url, handle);
    let told = 0;
    const timer = setInterval(() => {
      if (state.count === told) return;
      told = state.count;
      tell({ count: told, first: state.first, cpu: cpu(), delays: [] });
    }, 20);
    await lines.next();
    clearInterval(timer);
    tell({ ...state, cpu: cpu() });
    await stop();
  },
};

async function together(count, callers, call) {
  let left = count;
  const caller = async () => {
    while (left-- > 0) await call();
  };
  await Promise.all(Array.from({ length: callers }, caller));
}

await roles[role](...numbers);
process.exit(0);
