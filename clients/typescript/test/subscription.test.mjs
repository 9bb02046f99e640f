import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { Outbox, OutboxError } from "@outboxrelay/client";
import { control, token, url, write } from "./gateway.mjs";

const outbox = new Outbox({ url, token });
const keys = ["a", "b", "c", "d", "e"], each = 20;

/** A new subscription of events of its own name. @param {string} name @param {object} options */
async function subscribed(name, options = {}) {
  const subscription = outbox.subscription(name);
  await subscription.create({ types: [name], from: "earliest", lease: "30s", ...options });
  return subscription;
}

/**
 * What was handled, by key. Each number comes after the one before it, and may come again: at least once.
 * @param {Map<string, number[]>} handled
 */
function inOrder(handled) {
  for (const [key, numbers] of handled) {
    let last = 0;
    for (const n of numbers) {
      assert.ok(n <= last + 1, `${key}: ${n} after ${last}: ${numbers}`);
      last = Math.max(last, n);
    }
  }
}

/** Notes an event, and tells how many different ones there are. */
function noting() {
  const handled = /** @type {Map<string, number[]>} */ (new Map());
  return {
    handled,
    note(/** @type {{ key: string | null, payload: number }} */ { key, payload }) {
      const numbers = handled.get(`${key}`) ?? [];
      handled.set(`${key}`, [...numbers, payload]);
      return [...handled.values()].reduce((sum, numbers) => sum + new Set(numbers).size, 0);
    },
  };
}

test("everything is handled in the order of each key, though the gateway is killed", async () => {
  const subscription = await subscribed("ordered", { lease: "3s" });
  for (const key of keys) await write("ordered", key, 1, each);
  const { handled, note } = noting(), abort = new AbortController();
  let running = 0, most = 0, kills = 0;
  await subscription.consume(async (event) => {
    most = Math.max(most, ++running);
    const count = note(event);
    if (kills === 0 && count >= 30) {
      kills++;
      await control("kill");
      await control("start");
    }
    await new Promise((resolve) => setImmediate(resolve));
    running--;
    if (count === keys.length * each) abort.abort();
  }, { concurrency: 3, signal: abort.signal });
  inOrder(handled);
  assert.deepEqual([...handled.keys()].sort(), keys);
  assert.ok(most > 1 && most <= 3, `${most} at a time`);
  assert.equal(kills, 1);
});

test("what fails comes again before what is behind it, and is a letter in the end", async () => {
  const subscription = await subscribed("failing", { maxAttempts: 2 });
  await write("failing", "good", 1, 3);
  await write("failing", "slow", 1, 3); // 2 fails once
  await write("failing", "dead", 1, 3); // 2 fails for good
  const { handled, note } = noting(), abort = new AbortController(), errors = /** @type {string[]} */ ([]);
  await subscription.consume(async (event) => {
    if (event.payload === 2 && (event.key === "dead" || event.key === "slow" && event.attempt === 1)) {
      throw new Error(`${event.key} ${event.attempt}`);
    }
    if (note(event) === 8) abort.abort();
  }, { signal: abort.signal, onError: (error) => errors.push(String(error)) });
  assert.deepEqual(Object.fromEntries(handled), { good: [1, 2, 3], slow: [1, 2, 3], dead: [1, 3] });
  assert.deepEqual(errors.sort(), ["Error: dead 1", "Error: dead 2", "Error: slow 1"]);
  assert.equal(await control("letters", { subscription: "failing" }), 1);
});

test("what a killed process had in hand is another's after the lease", async () => {
  const subscription = await subscribed("killed", { lease: "2s" });
  for (const key of keys) await write("killed", key, 1, 4);
  const process = spawn("node", ["test/consumer.mjs", "killed"], { stdio: ["ignore", "pipe", "inherit"] });
  const [hung] = await once(process.stdout, "data");
  process.kill("SIGKILL");
  const { handled, note } = noting(), abort = new AbortController();
  await subscription.consume((event) => {
    if (note(event) === 4 * keys.length || [...handled.values()].flat().length > 1000) abort.abort();
  }, { signal: abort.signal, concurrency: 2 }).catch(assert.fail);
  assert.ok(Number(hung) >= 1, "it was killed before it had an event");
  inOrder(handled);
});

test("the loop: an event that is not acknowledged in time is another's, and says so", async () => {
  const subscription = await subscribed("loop", { lease: "1s" });
  await write("loop", "k", 1, 2);
  const late = subscription.events({ most: 1 }), { value: first } = await late.next();
  const again = subscription.events({ most: 2 }), { value: second } = await again.next();
  assert.deepEqual([first.payload, second.payload, second.id === first.id, second.attempt], [1, 1, true, 2]);
  assert.equal(await first.ack(), false);
  assert.equal(await first.nack("late"), null);
  assert.equal((await second.nack("not today", "0s"))?.dead, false);
  const { value: third } = await again.next(); // not the second of the key, which it had in hand
  assert.deepEqual([third.payload, third.attempt], [1, 3]);
  assert.equal(await third.ack(), true);
  const { value: next } = await again.next();
  assert.equal(next.payload, 2);
  assert.equal((await next.nack("not a string", undefined, "DeserializationFailed"))?.dead, true); // other reasons: after 5 attempts
  await late.return(undefined);
  await again.return(undefined);
});

test("the same id of another type is another key", async () => {
  const subscription = await subscribed("types");
  await write("types", "42", 1, 1);
  await write("types", "42", 2, 1, "Invoice");
  const events = subscription.events({ most: 2 }), { value: order } = await events.next();
  await order.nack("out of stock", "1h");
  const { value: invoice } = await events.next();
  assert.deepEqual([order.payload, invoice.payload, invoice.key, await invoice.ack()], [1, 2, "42", true]);
  assert.notEqual(order.order_key, invoice.order_key);
  await events.return(undefined);
});

test("an abort lets handlers end, and acknowledges them", async () => {
  const subscription = await subscribed("stopped"), abort = new AbortController();
  await write("stopped", "k", 1, 3);
  let ended = 0;
  await subscription.consume(async () => {
    abort.abort();
    await new Promise((resolve) => setImmediate(resolve));
    ended++;
  }, { signal: abort.signal });
  await write("stopped", "k", 4, 1);
  const rest = subscription.events(), { value: next } = await rest.next();
  await rest.return(undefined);
  assert.deepEqual([ended, next.payload], [3, 4]);
});

test("what waiting does not cure is thrown", async () => {
  const refused = (/** @type {unknown} */ error) => error instanceof OutboxError && error.status === 404;
  await assert.rejects(outbox.subscription("nosuch").consume(() => {}), refused);
  await assert.rejects(new Outbox({ url, token: "obx_wrong" }).subscription("ordered").events().next(), { status: 401 });
});

test("the token does not follow a redirect", async () => {
  /** @type {(string | undefined)[]} */
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(request.url);
    response.writeHead(307, { Location: "/elsewhere" }).end();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const redirected = new Outbox({ url: `http://127.0.0.1:${port}`, token });
  for (const method of ["GET", "POST"]) {
    await assert.rejects(redirected.request(method, "/v1/runs"), { name: "OutboxError", status: 307 });
  }
  assert.deepEqual(asked, ["/v1/runs", "/v1/runs"]);
  server.close();
});
