// What the tests know of the gateway that clients/main_test.go runs for them.
import { Outbox } from "@outboxrelay/client";

const { OUTBOX_URL: url = "", OUTBOX_TOKEN: token = "", OUTBOX_CONTROL = "" } = process.env;
export { token, url };

/** @param {"kill" | "start"} what */
export async function control(what) {
  const answer = await fetch(`${OUTBOX_CONTROL}/${what}`, { method: "POST" });
  if (!answer.ok) throw new Error(await answer.text());
}

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
