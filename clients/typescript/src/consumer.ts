import { Backoff, transient } from "./retry.ts";
import { lane, type Subscription, type SubscriptionEvent } from "./subscription.ts";

export interface ConsumeOptions {
  /** How many handlers run at a time (8). Twice as many events are in hand, so that leases do not end there. */
  concurrency?: number;
  signal?: AbortSignal;
  /** Is told what a handler threw, and which event was handled when its lease had ended, and comes again. */
  onError?: (error: unknown, event: SubscriptionEvent) => void;
}

const acksAtOnce = 500;

export async function consume(
  subscription: Subscription, handler: (event: SubscriptionEvent) => unknown,
  { concurrency = 8, signal, onError = () => {} }: ConsumeOptions,
): Promise<void> {
  const waiting: SubscriptionEvent[][] = [], running = new Set<Promise<void>>();
  let inHand = 0, freed = () => {};
  let handled: SubscriptionEvent[] = [], sending: Promise<void> | undefined;

  const room = async () => {
    while (inHand > concurrency) await new Promise<void>((resolve) => freed = resolve);
    return 2 * concurrency - inHand;
  };
  const start = () => {
    while (running.size < concurrency && waiting.length > 0) {
      const work = handle(waiting.shift()!).finally(() => {
        running.delete(work);
        start();
      });
      running.add(work);
    }
  };
  /** Handles events of one key. What follows one that failed comes again behind it. */
  const handle = async (events: SubscriptionEvent[]) => {
    for (const event of events) {
      try {
        await handler(event);
      } catch (error) {
        onError(error, event);
        await persist([event], () => event.nack(error));
        break;
      }
      handled.push(event);
      sending ??= acknowledge();
    }
    inHand -= events.length;
    freed();
  };
  /** Sends what is handled: while one request is under way, what gathers becomes the next. */
  const acknowledge = async () => {
    while (handled.length > 0) {
      const events = handled.splice(0, acksAtOnce);
      for (const { id, reason } of await persist(events, () => subscription.ack(events)) ?? []) {
        // Of an event that is unknown an earlier request was heard, whose answer was lost.
        if (reason === "lapsed") onError(new Error("handled after its lease"), events.find((event) => event.id === id)!);
      }
    }
    sending = undefined;
  };
  /** Tries until the gateway has answered. What it never hears of comes again, when its lease ends. */
  const persist = async <T>(events: SubscriptionEvent[], send: () => Promise<T>): Promise<T | undefined> => {
    for (const backoff = new Backoff(); ; await backoff.wait(signal)) {
      try {
        return await send();
      } catch (error) {
        if (transient(error) && !signal?.aborted) continue;
        for (const event of events) onError(error, event);
        return undefined;
      }
    }
  };

  try {
    for await (const events of subscription.batches(room, signal)) {
      inHand += events.length;
      // All that is leased of a key comes in one answer, and nothing more of it until that is acknowledged.
      const lanes = new Map<string, SubscriptionEvent[]>();
      for (const event of events) lanes.set(lane(event), [...lanes.get(lane(event)) ?? [], event]);
      waiting.push(...lanes.values());
      start();
    }
  } finally {
    while (running.size > 0) await Promise.all(running);
    await sending;
  }
}
