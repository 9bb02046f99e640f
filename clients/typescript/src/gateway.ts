import type { components } from "./openapi.ts";
import { stream, type StreamEvent, type StreamOptions } from "./stream.ts";
import { Subscription } from "./subscription.ts";

export interface OutboxOptions {
  /** Where the gateway answers, or the proxy before it. In a page it may be a path of the page's own server. */
  url: string;
  /** A token of `outbox token create`. A page has none: its streams are opened with tickets. */
  token?: string;
  /** Where a ticket comes from, if not from `POST /v1/stream-tickets` at `url`. Each is good for one connection. */
  ticket?: (signal: AbortSignal) => Promise<string>;
}

/** An answer that is no success. `message` is what the gateway says is wrong. */
export class OutboxError extends Error {
  override name = "OutboxError";
  constructor(
    readonly status: number,
    message: string,
    /** Milliseconds that the gateway asks to wait, 0 if it does not say. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }

  static async of(response: Response): Promise<OutboxError> {
    const problem = await response.json().catch(() => ({})) as Partial<components["schemas"]["ErrorModel"]>;
    const seconds = Number(response.headers.get("Retry-After")) || 0;
    return new OutboxError(response.status, problem.detail ?? `status ${response.status}`, seconds * 1000);
  }
}

export interface Request {
  query?: Record<string, string>;
  body?: unknown;
  signal?: AbortSignal;
}

/** An Outbox gateway. It holds no connection: those are of the streams and subscriptions that are read. */
export class Outbox {
  readonly #url: string;
  readonly #token: string | undefined;
  readonly #ticket: (signal: AbortSignal) => Promise<string>;

  constructor({ url, token, ticket }: OutboxOptions) {
    this.#url = new URL(url, globalThis.location?.href).href.replace(/\/$/, "");
    this.#token = token;
    this.#ticket = ticket ?? (async (signal) => {
      const response = await this.request("POST", "/v1/stream-tickets", { signal });
      return (await response.json() as components["schemas"]["StreamTicket"]).ticket;
    });
  }

  /**
   * The events of a run, from the first or from what follows `lastEventId`, each once and in order, until the run ends.
   * Lost connections are made again. Throws an {@link OutboxError} for what waiting does not cure.
   */
  runEvents(run: string, options: StreamOptions = {}): AsyncGenerator<StreamEvent> {
    return stream(this, `/v1/runs/${encodeURIComponent(run)}/stream`, {}, options);
  }

  /**
   * The events of runs (`run:ID`) and topics over one connection. Of a topic it is what is delivered from now on; an
   * event `outbox.reset` says that some of `data.topic` may have been missed.
   */
  stream(topics: readonly string[], options: StreamOptions = {}): AsyncGenerator<StreamEvent> {
    return stream(this, "/v1/stream", { topics: topics.join(",") }, options);
  }

  /** The durable subscription of this name, which its `create` makes. */
  subscription(name: string): Subscription {
    return new Subscription(this, name);
  }

  /** What opens a stream: a ticket, where there is no token. */
  async credentials(signal: AbortSignal): Promise<Record<string, string>> {
    return this.#token === undefined ? { ticket: await this.#ticket(signal) } : {};
  }

  /** Sends a request. Throws an {@link OutboxError} for an answer that is no success, a TypeError where none came. */
  async request(method: string, path: string, { query, body, signal }: Request = {}): Promise<Response> {
    const headers: Record<string, string> = {};
    if (this.#token !== undefined) headers.Authorization = `Bearer ${this.#token}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(`${this.#url}${path}${query ? `?${new URLSearchParams(query)}` : ""}`, {
      method, headers, cache: "no-store", signal: signal ?? null,
      redirect: "manual", // a redirect is no success: the token is for this address alone
      body: body === undefined ? null : JSON.stringify(body),
    });
    if (!response.ok) throw await OutboxError.of(response);
    return response;
  }
}
