// What the admin API sends, by the names of its schemas.
import type { Exact } from './json'

export type Int = number | Exact
export type Severity = 'healthy' | 'advice' | 'warning' | 'unknown' | 'critical'

export interface Session {
  authentication: boolean
  tenant: string
  scopes: string[]
  readOnly: boolean
  environment?: { name: string; colour: string }
  version: string
}
export interface Finding {
  id: string
  name: string
  category: string
  severity: Severity
  about: string
  says: string
  since?: string
  remedy: string
  see?: string
}
export interface Unseen {
  id?: string
  name: string
  state: string
  why: string
}
export interface RelayShare {
  owner: string
  name: string
  joinedAt?: string
  expiresInSeconds?: number
  lanes: number
  share?: number
}
export interface TableState {
  table: string
  group?: string
  why?: string
  sink: string
  log: boolean
  hidden: boolean
  paused: boolean
  backlog: number
  bounded: boolean
  oldestSeconds?: number
  retrying: number
  heldKeys: number
  held: number
  writtenPerSecond?: number
  deliveredPerSecond?: number
  relays?: RelayShare[]
  freeLanes: number
  lapsedLanes: number
}
export interface SinkState {
  name: string
  url: string
  state: 'available' | 'down' | 'slow' | 'unknown'
  reason?: string
  since?: string
  owed: number
  retrying: number
  held: number
  heldKeys: number
  oldestSeconds?: number
  dead: number
  tables?: string[]
}
export interface Pause {
  table?: string
  to?: string
  topic?: string
  destination?: string
  reason?: string
  actor?: string
  pausedAt?: string
}
export interface EventRow {
  id: string
  position: Int
  status: string
  topic: string
  key?: string
  aggregateType?: string
  tenant?: string
  source?: string
  writtenAt?: string
  deliveredAt?: string
  attempts: number
  nextRetryAt?: string
  lastError?: string
  destinations?: string[]
  waitsBehind?: string
  paused?: boolean
}
export interface Failing {
  id: string
  table: string
  to?: string
  key?: string
  topic?: string
  attempts: number
  nextRetryAt?: string
  writtenAt?: string
  error?: string
}
export interface Attempt {
  error: string
  timestamp: string
}
export interface Delivery {
  sink: string
  destination: string
  status: string
  attempts: number
  nextRetryAt?: string
  lastError?: string
  deliveredAt?: string
  paused?: boolean
}
export interface EventDetail extends EventRow {
  occurredAt?: string
  schemaId?: string
  schemaVersion?: Int
  lane?: number
  sequence?: Int
  generation?: number
  deliveredTo?: string[]
  errorHistory?: Attempt[]
  metadata?: unknown
  payload?: unknown
  deliveries?: Delivery[]
}
export interface OneEvent {
  table: string
  event: EventDetail
  says: string[]
  payloadBytes: number
  payloadCut: boolean
}
export interface Overview {
  at: string
  worst: Severity
  sentence: string
  findings?: Finding[]
  examinedAt?: string
  unseen?: Unseen[]
  tables?: TableState[]
  sinks?: SinkState[]
  blocked?: Failing[]
  letters: { pending: number; bounded: boolean }
  pauses?: Pause[]
  error?: string
}
export interface TableSample {
  backlog: number
  oldestSeconds?: number
  writtenPerSecond?: number
  deliveredPerSecond?: number
}
export interface Sample {
  at: string
  tables: Record<string, TableSample>
}
export interface Letter {
  id: string
  at: string
  source: string
  state: string
  originalId: string
  tenant?: string
  userId?: string
  requestId?: string
  type: string
  reason: string
  attempts: number
  lastError?: string
  fingerprint?: string
  table?: string
  destination?: string
  key?: string
  position?: Int
  generation?: number
  replayedAt?: string
  discardedAt?: string
  discardReason?: string
  errorHistory?: Attempt[]
  payload?: unknown
}
export interface LetterGroup {
  fingerprint: string
  count: number
  oldest: string
  newest: string
  sample: string
  types: { source: string; type: string; reason: string; count: number }[]
}
export interface Counted {
  count: number
  first?: string
}
export interface ReplayPreview {
  letters: number
  set: string
  outsideWindow?: number
  tables?: {
    table: string
    letters: number
    stuck?: number
    overtaken?: Counted
    racing?: Counted
    leftBehind?: Counted
  }[]
}
export interface Progress {
  total: number
  replayed: number
  skipped: number
  step: number
  stepLetters: number
  waiting: number
  failing: number
  delivered: number
  dead: number
  skipReasons?: { why: string; count: number; first?: string[] }[]
  outcome?: 'done' | 'stopped' | 'cancelled' | 'failed'
  says?: string
}
export interface AuditEntry {
  id: string
  at: string
  actor: string
  login?: string
  action: string
  letters?: number
  filter?: unknown
  reason?: string
  detail?: unknown
}
export interface Setting {
  name: string
  value: unknown
  from: string
}
export interface Run {
  runId: string
  tenant: string
  status: string
  appPackage: string
  createdAt: string
  startedAt?: string
  completedAt?: string
  cancelledAt?: string
  error?: string
  lastSeq: Int
  goal?: string
}
export interface RunEvent {
  seq: Int
  id: string
  type: string
  createdAt: string
  payload: unknown
}
export interface Page<T> {
  items: T[]
  nextCursor?: string
}
export type Search = Record<string, string | undefined>
