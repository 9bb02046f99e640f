import { OutboxError, type Outbox } from "./gateway.ts";
import { Backoff, transient } from "./retry.ts";

/** A CloudEvent 1.0, as docs/reference/messages.md describes it. */
export interface CloudEvent<T = unknown> {
  specversion: "1.0";
  id: string;
  source: string;
  type: string;
  subject?: string;
  time?: string;
  tenantid?: string;
  partitionkey?: string;
  sequence?: string;
  data?: T;
  [attribute: string]: unknown;
}

export interface StreamEvent {
  /** The cursor: what `lastEventId` takes to go on after this event. */
  id: string;
  type: string;
  /** A CloudEvent; with `envelope: "payload"` the payload; of `outbox.reset` an object with the topic. */
  data: any;
}

/** What a stream is doing: it waits after a lost connection, or a server that is not there. */
export type StreamState = "connecting" | "live" | "waiting";

export interface StreamOptions {
  /** Goes on after this event. Of a stream of topics it is an id of the same list. */
  lastEventId?: string;
  envelope?: "cloudevents" | "payload";
  /** Ends the iteration. */
  signal?: AbortSignal;
  onState?: (state: StreamState) => void;
}

/** Milliseconds without a byte after which a connection is taken for dead. The gateway sends a comment every 15 s. */
const silence = 45_000;

const terminal = new Set(["RUN_COMPLETED", "RUN_FAILED", "RUN_CANCELLED"]);

/** Reads a stream, and connects again with the last id. */
export async function* stream(
  outbox: Outbox, path: string, query: Record<string, string>, options: StreamOptions,
): AsyncGenerator<StreamEvent> {
  const { signal, onState } = options;
  const backoff = new Backoff();
  let cursor = options.lastEventId ?? "", pause = 0, refused = false;
  while (!signal?.aborted) {
    const connection = new Connection(signal);
    try {
      onState?.("connecting");
      const response = await connection.open(outbox, path, {
        ...query, ...options.envelope && { envelope: options.envelope }, ...cursor && { lastEventId: cursor },
      });
      if (response.status === 204) return; // all runs have ended, and we have all of them
      onState?.("live");
      for await (const frame of connection.frames(response)) {
        backoff.reset();
        refused = false;
        cursor = frame.id ?? cursor;
        pause = frame.retry ?? pause;
        if (frame.data === undefined) continue;
        const type = frame.event ?? "message";
        yield { id: cursor, type, data: JSON.parse(frame.data) };
        if (query.topics === undefined && terminal.has(type)) return;
      }
    } catch (error) {
      if (signal?.aborted) return;
      // A ticket that has grown old on the way, once: who may have none is told so by the request for the next.
      const old: boolean = error instanceof OutboxError && error.status === 401 && connection.ticketed && !refused;
      if (!old && !transient(error)) throw error;
      refused = old;
      pause = error instanceof OutboxError ? error.retryAfter : pause;
    } finally {
      connection.close();
    }
    onState?.("waiting");
    await backoff.wait(signal, pause);
  }
}

/** One block of a stream. */
interface Frame {
  id?: string;
  event?: string;
  data?: string;
  retry?: number;
}

/** One request for a stream, which is given up when nothing comes. */
class Connection {
  readonly #abort = new AbortController();
  readonly #signal: AbortSignal;
  #timer: ReturnType<typeof setTimeout> | undefined;
  ticketed = false; // the ticket was issued, and the stream was asked for with it

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal ? AbortSignal.any([signal, this.#abort.signal]) : this.#abort.signal;
  }

  async open(outbox: Outbox, path: string, query: Record<string, string>): Promise<Response> {
    const response = await this.#within(async () => {
      const credentials = await outbox.credentials(this.#signal);
      this.ticketed = "ticket" in credentials;
      return outbox.request("GET", path, { query: { ...query, ...credentials }, signal: this.#signal });
    });
    if (response.status !== 204 && !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      throw new OutboxError(502, "the answer is no event stream: something else answers for the gateway");
    }
    return response;
  }

  /** The blocks of a stream, until it ends. A part of one, behind the last empty line, is none. */
  async *frames(response: Response): AsyncGenerator<Frame> {
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", frame: Frame = {};
    for (;;) {
      const { value, done } = await this.#within(() => reader.read());
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        if (line === "") {
          yield frame;
          frame = {};
        }
        const colon = line.indexOf(":"), text = line.slice(colon + 1).replace(/^ /, "");
        switch (line.slice(0, colon)) { // a comment has an empty name
          case "id": frame.id = text; break;
          case "event": frame.event = text; break;
          case "data": frame.data = frame.data === undefined ? text : `${frame.data}\n${text}`; break;
          case "retry": frame.retry = Number(text); break;
        }
      }
    }
  }

  close(): void {
    this.#abort.abort();
  }

  /** Waits for the server, not for whoever reads the events: only its silence is counted. */
  async #within<T>(action: () => Promise<T>): Promise<T> {
    this.#timer = setTimeout(() => this.#abort.abort(new TypeError("the connection is dead")), silence);
    try {
      return await action();
    } finally {
      clearTimeout(this.#timer);
    }
  }
}
