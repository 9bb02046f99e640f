DROP TABLE outbox_tickets;
DROP TABLE outbox_tokens;
