-- endpoints: adds one unless there is one of its name. ?1 name, ?2 tenant, ?3 URL, ?4 secrets, ?5 headers, ?6 timeout
-- in milliseconds, ?7 concurrency, ?8 rate, ?9 whether it is disabled, ?10 why, ?11 revision, ?12 now, ?13 topics,
-- ?14 types. Index: the primary key.
INSERT INTO outbox_endpoints (name, tenant_id, url, secrets, headers, timeout_ms, concurrency, rate, disabled_at,
                              disabled_reason, revision, created_at, updated_at, topics, types)
VALUES (?1, nullif(?2, ''), ?3, ?4, ?5, nullif(?6, 0), nullif(?7, 0), nullif(?8, 0), CASE WHEN ?9 THEN ?12 END,
        nullif(?10, ''), ?11, ?12, ?12, ?13, ?14)
ON CONFLICT (name) DO NOTHING
