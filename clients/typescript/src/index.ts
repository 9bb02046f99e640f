export { Outbox, OutboxError, type OutboxOptions } from "./gateway.ts";
export type { components, operations, paths } from "./openapi.ts";
export type { CloudEvent, StreamEvent, StreamOptions, StreamState } from "./stream.ts";
export {
  Subscription, type CreateOptions, type Nacked, type Reason, type Refused, type SubscriptionEvent,
} from "./subscription.ts";
export type { ConsumeOptions } from "./consumer.ts";
