DROP TABLE IF EXISTS outbox_tickets;
DROP TABLE IF EXISTS outbox_tokens;
