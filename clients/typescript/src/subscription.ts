import { consume, type ConsumeOptions } from "./consumer.ts";
import { OutboxError, type Outbox } from "./gateway.ts";
import { Backoff, transient } from "./retry.ts";

export interface CreateOptions {
  types: readonly string[];
  /** Where it begins: at the `earliest` event, the `latest`, or a time (RFC 3339). */
  from?: "earliest" | "latest" | (string & {});
  /** How long an event is one consumer's, such as `30s`. */
  lease?: string;
  maxAttempts?: number;
}

/** Why an event is a dead letter. With DeserializationFailed or DuplicateEvent it becomes one at once. */
export type Reason = "DeliveryFailed" | "DeserializationFailed" | "DuplicateEvent" | "HandlerMissing" | "HandlerTimeout";

/** What becomes of an event that failed: it comes again at a time, or it is a dead letter. */
export interface Nacked {
  attempt: number;
  again_at: string | null;
  dead: boolean;
}

/** An event that comes again though it was acknowledged: its lease had ended, or it is none of the subscription's. */
export interface Refused {
  id: string;
  reason: "lapsed" | "unknown";
}

interface Leased {
  id: string;
  position: string;
  token: string;
  attempt: number;
  type: string;
  /** The aggregate's id. */
  key: string | null;
  /** Events with the same one stay in order: those of a tenant's aggregate. */
  order_key: string | null;
  tenant: string;
  occurred_at: string;
  payload: any;
  metadata: Record<string, unknown> | null;
}

/** An event that is leased to this process. What is neither acknowledged nor refused comes again after the lease. */
export interface SubscriptionEvent extends Leased {
  acknowledged: boolean;
  /** Tells that the event is handled. False: the lease had ended before, so the event comes again. */
  ack(): Promise<boolean>;
  /** Tells that it failed, and when to try again (`10s`; the subscription knows). Null: the lease had ended. */
  nack(error: unknown, delay?: string, reason?: Reason): Promise<Nacked | null>;
}

/** What stays in order; an event without a key, by itself. */
export function lane({ id, order_key: key }: SubscriptionEvent): string {
  return key ?? id;
}

/** A durable subscription, which any number of processes share. */
export class Subscription {
  readonly #outbox: Outbox;
  readonly #path: string;

  constructor(outbox: Outbox, name: string) {
    this.#outbox = outbox;
    this.#path = `/v1/subscriptions/${encodeURIComponent(name)}`;
  }

  /** Makes the subscription, where it is not there. */
  async create({ types, from, lease, maxAttempts }: CreateOptions): Promise<void> {
    await this.#send("PUT", "", { types, from, lease, max_attempts: maxAttempts });
  }

  /** Acknowledges events at once. Returns those that come again. */
  async ack(events: readonly SubscriptionEvent[]): Promise<Refused[]> {
    return (await this.#send("POST", "/ack", { events: events.map(({ id, token }) => ({ id, token })) })).refused;
  }

  /**
   * The events, one after the other; `ack` or `nack` each. One that is not acknowledged holds back what follows of its
   * key: that comes again behind it. Throws an {@link OutboxError} for what waiting does not cure.
   */
  async *events({ signal, most = 10 }: { signal?: AbortSignal; most?: number } = {}): AsyncGenerator<SubscriptionEvent> {
    for await (const batch of this.batches(() => most, signal)) {
      const held = new Set<string>();
      for (const event of batch) {
        if (signal?.aborted) return;
        if (held.has(lane(event))) continue;
        yield event;
        if (!event.acknowledged) held.add(lane(event));
      }
    }
  }

  /**
   * Calls a handler for each event, several at a time and in the order of each key, until `signal` is aborted. What it
   * returns from is acknowledged; what it throws for is refused, and comes again. Throws an {@link OutboxError} for what
   * waiting does not cure. In either case it first handles what it has in hand.
   */
  consume(handler: (event: SubscriptionEvent) => unknown, options: ConsumeOptions = {}): Promise<void> {
    return consume(this, handler, options);
  }

  /** Leases events, as many as there is room for, until `signal` is aborted. A gateway that is away is waited for. */
  async *batches(
    room: () => number | Promise<number>, signal: AbortSignal | undefined,
  ): AsyncGenerator<SubscriptionEvent[]> {
    const backoff = new Backoff();
    for (let most; most = await room(), !signal?.aborted;) {
      try {
        const { events } = await this.#send("GET", `/events?wait=30s&most=${most}`, undefined, signal);
        backoff.reset();
        yield events.map((fields: Leased) => this.#event(fields));
      } catch (error) {
        if (signal?.aborted) return;
        if (!transient(error)) throw error;
        await backoff.wait(signal, error instanceof OutboxError ? error.retryAfter : 0);
      }
    }
  }

  #event(fields: Leased): SubscriptionEvent {
    const { id, token } = fields;
    const event: SubscriptionEvent = {
      ...fields,
      acknowledged: false,
      ack: async () => event.acknowledged = (await this.ack([event])).length === 0,
      nack: (error, delay, reason) =>
        this.#send("POST", "/nack", { id, token, error: String(error).slice(0, 1000), delay, reason }).catch((refusal: unknown) => {
          if (refusal instanceof OutboxError && refusal.status === 409) return null;
          throw refusal;
        }),
    };
    return event;
  }

  async #send(method: string, path: string, body: unknown, signal?: AbortSignal): Promise<any> {
    const limit = AbortSignal.timeout(60_000); // twice as long as the gateway waits for events
    const answer = await this.#outbox.request(method, this.#path + path, {
      body, signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    return answer.json();
  }
}
