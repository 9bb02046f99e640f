-- run: appends one event to the log. ?1 run, ?2 type, ?3 payload, ?4 now, ?5 id, ?6 number, ?7 tenant. The run is
-- locked. A trigger refuses a number that is not the next one, and any behind a terminal event.
INSERT INTO crawl_events (crawl_id, event_type, payload, created_at, event_id, seq, tenant_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
