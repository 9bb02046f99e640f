// A process that prints what it has handled, and hangs in its second event: node consumer.mjs SUBSCRIPTION
import { Outbox } from "@outboxrelay/client";
import { token, url } from "./gateway.mjs";

let count = 0;
await new Outbox({ url, token }).subscription(process.argv[2] ?? "").consume(async ({ payload }) => {
  if (++count === 2) await new Promise(() => process.stdout.write(`${payload}\n`));
});
