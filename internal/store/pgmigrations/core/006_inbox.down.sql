DROP FUNCTION IF EXISTS outbox_inbox_sweep();
DROP FUNCTION IF EXISTS outbox_once(uuid[], uuid, interval[]);
DROP TABLE IF EXISTS outbox_inbox_claims, outbox_inbox_consumers, outbox_inbox_turn, outbox_inbox_1, outbox_inbox_0;
