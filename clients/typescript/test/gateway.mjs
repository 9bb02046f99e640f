// What the tests know of the gateway that clients/main_test.go runs for them.
import { Outbox } from "@outboxrelay/client";

const { OUTBOX_URL: url = "", OUTBOX_TOKEN: token = "", OUTBOX_CONTROL = "" } = process.env;
export { token, url };

/** @param {"kill" | "start" | "write" | "letters"} what @param {Record<string, string>} parameters */
export async function control(what, parameters = {}) {
  const answer = await fetch(`${OUTBOX_CONTROL}/${what}?${new URLSearchParams(parameters)}`, { method: "POST" });
  const text = await answer.text();
  if (!answer.ok) throw new Error(text);
  return Number(text);
}

/** Writes events of a key, whose payloads count from first. @param {string} type @param {string} key */
export const write = (type, key, first = 1, count = 10, of = "Order") =>
  control("write", { type, key, first: `${first}`, count: `${count}`, of });

/** @typedef {Awaited<ReturnType<typeof newRun>>} Run */

/** A run that has started, with so many events after that. @param {number} events */
export async function newRun(events) {
  const outbox = new Outbox({ url, token });
  const send = (/** @type {string} */ method, /** @type {string} */ path, /** @type {unknown} */ body) =>
    outbox.request(method, path, { body }).then((answer) => answer.json());
  const { runId: id } = await send("POST", "/v1/runs", { appPackage: "com.example.shop" });
  await send("POST", `/v1/runs/${id}/start`, {});
  const run = {
    id,
    append: (/** @type {number} */ n) =>
      send("POST", `/v1/runs/${id}/events`, { events: Array(n).fill({ type: "ACTION_EXECUTED", payload: { tap: true } }) }),
    complete: () => send("POST", `/v1/runs/${id}/complete`, {}),
    lastSeq: async () => (await send("GET", `/v1/runs/${id}`, undefined)).lastSeq,
  };
  if (events > 0) await run.append(events);
  return run;
}
