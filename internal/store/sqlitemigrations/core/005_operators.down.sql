DROP TABLE outbox_tickets;
DROP TABLE outbox_tokens;
DROP TABLE outbox_audit;
