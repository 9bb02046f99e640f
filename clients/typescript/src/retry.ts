import { OutboxError } from "./gateway.ts";

const longest = 30_000;

/**
 * Tells what waiting may cure: no answer (fetch throws a TypeError), too much at a time, a server that is not there. It
 * does not cure 501: this gateway has no subscriptions.
 */
export function transient(error: unknown): boolean {
  if (error instanceof OutboxError) return error.status === 429 || error.status >= 500 && error.status !== 501;
  return error instanceof TypeError || error instanceof DOMException && error.name === "TimeoutError";
}

/** Waits that double from half a second to half a minute, each by chance shorter, so that clients do not come together. */
export class Backoff {
  #failures = 0;

  /** Begins anew, after a success. */
  reset(): void {
    this.#failures = 0;
  }

  /** Waits before the next attempt, at least so many milliseconds, or until `signal` is aborted. */
  async wait(signal: AbortSignal | undefined, atLeast = 0): Promise<void> {
    const most = Math.min(longest, 500 * 2 ** this.#failures++);
    await sleep(atLeast + most * (0.5 + Math.random() / 2), signal);
  }
}

/** Resolves after so many milliseconds, or as soon as `signal` is aborted. */
export function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    if (signal?.aborted) done();
    else signal?.addEventListener("abort", done);
  });
}
