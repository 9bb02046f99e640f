-- run: gives one event to the outbox, after run_append.sql and with its parameters. Positions are drawn in the order of
-- numbers and under the same lock, so that the relay publishes a run's events in their order.
INSERT INTO crawl_outbox (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
