export { Outbox, OutboxError, type OutboxOptions } from "./gateway.ts";
export type { components, operations, paths } from "./openapi.ts";
export type { CloudEvent, StreamEvent, StreamOptions, StreamState } from "./stream.ts";
