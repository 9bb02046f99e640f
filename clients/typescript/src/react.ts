import { useEffect, useState } from "react";
import type { Outbox } from "./gateway.ts";
import type { StreamEvent, StreamOptions, StreamState } from "./stream.ts";

export interface UseStreamOptions {
  /** What was shown before, as after a reload: the stream goes on behind its last event. It is read once. */
  initial?: readonly StreamEvent[];
  /** How many of the last events are kept (1000). */
  limit?: number;
  envelope?: "cloudevents" | "payload";
}

export interface UseStreamResult {
  events: readonly StreamEvent[];
  /** `ended`: there is nothing more to come; `failed`: `error` says why, and nothing is tried again. */
  state: StreamState | "ended" | "failed";
  error?: unknown;
}

/** The events of a run. Make `outbox` outside of the component: another one is another stream. */
export function useRunEvents(outbox: Outbox, run: string, options: UseStreamOptions = {}): UseStreamResult {
  return useEvents(outbox, run, (stream) => outbox.runEvents(run, stream), options);
}

/** The events of runs and topics over one connection, as `Outbox.stream` has them. */
export function useStream(outbox: Outbox, topics: readonly string[], options: UseStreamOptions = {}): UseStreamResult {
  return useEvents(outbox, topics.join(","), (stream) => outbox.stream(topics, stream), options);
}

function useEvents(
  outbox: Outbox, name: string, open: (options: StreamOptions) => AsyncIterable<StreamEvent>,
  { initial = [], limit = 1000, envelope = "cloudevents" }: UseStreamOptions,
): UseStreamResult {
  const key = `${envelope} ${name}`;
  const begin = (): UseStreamResult & { key: string } => ({ key, events: initial, state: "connecting" });
  const [shown, setShown] = useState(begin);
  useEffect(() => {
    const abort = new AbortController();
    const change = (next: (before: UseStreamResult) => Partial<UseStreamResult>) => {
      if (!abort.signal.aborted) setShown((before) => ({ ...before, ...next(before) }));
    };
    const follow = async () => {
      const last = initial.at(-1)?.id;
      const events = open({
        envelope, signal: abort.signal, onState: (state) => change(() => ({ state })),
        ...last !== undefined && { lastEventId: last },
      });
      for await (const event of events) change(({ events }) => ({ events: [...events, event].slice(-limit) }));
      change(() => ({ state: "ended" }));
    };
    setShown(begin());
    follow().catch((error: unknown) => change(() => ({ state: "failed", error })));
    return () => abort.abort();
  }, [outbox, key, limit]); // not initial and open: they are new values at each rendering
  const { key: of, ...result } = shown.key === key ? shown : begin();
  return result;
}
