DROP TABLE outbox_inbox_claims;
DROP TABLE outbox_inbox_consumers;
DROP TABLE outbox_inbox_turn;
DROP TABLE outbox_inbox_1;
DROP TABLE outbox_inbox_0;
