import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { Outbox, OutboxError } from "@outboxrelay/client";
import { control, newRun, url, token } from "./gateway.mjs";

const many = 300;

/**
 * Reads a run to its end, with the gateway killed twice on the way, and returns what came.
 * @param {Outbox} outbox
 * @param {import("./gateway.mjs").Run} run
 */
async function readThroughRestarts(outbox, run) {
  const seen = [], states = /** @type {string[]} */ ([]);
  for await (const event of outbox.runEvents(run.id, { onState: (state) => states.push(state) })) {
    seen.push(event);
    if (seen.length === 50 || seen.length === 150) {
      await control("kill");
      await control("start");
      await run.append(100);
    }
    if (seen.length === 250) await run.append(many - 250 - 1).then(() => run.complete());
  }
  assert.ok(states.filter((state) => state === "waiting").length >= 2, `it was never away: ${states}`);
  return seen;
}

/** @param {import("@outboxrelay/client").StreamEvent[]} events */
const ids = (events) => events.map(({ id }) => Number(id));
const upTo = (/** @type {number} */ n) => Array.from({ length: n }, (_, i) => i + 1);

test("a run is read through restarts of the gateway, nothing missing and nothing twice", async () => {
  const run = await newRun(49);
  const seen = await readThroughRestarts(new Outbox({ url, token }), run);
  assert.deepEqual(ids(seen), upTo(seen.length));
  assert.equal(seen.length, await run.lastSeq());
  assert.equal(seen.at(-1)?.type, "RUN_COMPLETED");
  assert.equal(seen[5]?.data.subject, run.id);
});

test("without a token each connection has a ticket of its own", async () => {
  const run = await newRun(49), issuer = new Outbox({ url, token });
  let issued = 0;
  const page = new Outbox({
    url,
    ticket: async (signal) => {
      issued++;
      return (await (await issuer.request("POST", "/v1/stream-tickets", { signal })).json()).ticket;
    },
  });
  const seen = await readThroughRestarts(page, run);
  assert.deepEqual(ids(seen), upTo(await run.lastSeq()));
  assert.ok(issued >= 3, `${issued} tickets for three connections`);
});

test("a ticket that has been used is replaced once, and a useless source of tickets is an error", async () => {
  const run = await newRun(1);
  const used = new Outbox({ url, ticket: async () => "used" });
  await assert.rejects(used.runEvents(run.id).next(), { name: "OutboxError", status: 401 });
  await assert.rejects(new Outbox({ url }).runEvents(run.id).next(), { name: "OutboxError", status: 401 });
});

test("what waiting does not cure is thrown", async () => {
  const outbox = new Outbox({ url, token }), run = await newRun(1);
  const nobody = "00000000-0000-7000-8000-000000000000";
  await assert.rejects(outbox.runEvents(nobody).next(), (error) => error instanceof OutboxError && error.status === 404);
  await assert.rejects(outbox.runEvents(run.id, { lastEventId: "99" }).next(), { status: 400, message: /only 2 events/ });
  await assert.rejects(outbox.stream(["a.*"]).next(), { status: 400, message: /no patterns/ });
  assert.throws(() => new Outbox({ url: "nowhere" }), /Invalid URL/);
});

test("a reader goes on after its last id, and a run of which all is known is over", async () => {
  const outbox = new Outbox({ url, token }), run = await newRun(3);
  await run.complete();
  const rest = [];
  for await (const event of outbox.runEvents(run.id, { lastEventId: "2", envelope: "payload" })) rest.push(event);
  assert.deepEqual(ids(rest), [3, 4, 5]);
  assert.deepEqual(rest[0]?.data, { tap: true });
  assert.deepEqual(await outbox.runEvents(run.id, { lastEventId: "5" }).next(), { done: true, value: undefined });
});

test("an abort ends the iteration while it waits for an event", async () => {
  const run = await newRun(1), abort = new AbortController();
  let count = 0;
  for await (const _ of new Outbox({ url, token }).runEvents(run.id, { signal: abort.signal })) {
    if (++count === 2) setImmediate(() => abort.abort());
  }
  assert.equal(count, 2);
});

test("a reader that is told of a gap gets an event for it", async () => {
  const outbox = new Outbox({ url, token }), run = await newRun(0), topics = ["order.placed", `run:${run.id}`];
  const events = outbox.stream(topics);
  const { value: first } = await events.next();
  assert.equal(first.type, "RUN_STARTED");
  await events.return(undefined);
  await control("kill"); // and with it what it remembers of the topic
  await control("start");
  const again = outbox.stream(topics, { lastEventId: first.id }), { value: gap } = await again.next();
  assert.deepEqual([gap.type, gap.data], ["outbox.reset", { topic: "order.placed" }]);
  await again.return(undefined);
});

test("another program's answer is waited out", async () => {
  const stranger = createServer((_, response) => response.end("<h1>Maintenance</h1>")).listen(0, "127.0.0.1");
  await once(stranger, "listening");
  const address = /** @type {import("node:net").AddressInfo} */ (stranger.address());
  const abort = new AbortController(), states = /** @type {string[]} */ ([]);
  const outbox = new Outbox({ url: `http://127.0.0.1:${address.port}`, token });
  const onState = (/** @type {string} */ state) => {
    states.push(state);
    if (states.length === 4) abort.abort();
  };
  const { done } = await outbox.runEvents("any", { signal: abort.signal, onState }).next();
  stranger.close();
  assert.ok(done);
  assert.deepEqual(states, ["connecting", "waiting", "connecting", "waiting"]);
});
