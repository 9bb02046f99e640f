DROP TABLE IF EXISTS outbox_tickets, outbox_tokens, outbox_audit;
