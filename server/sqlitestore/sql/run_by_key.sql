-- run: the run of an idempotency key. ?1 tenant, ?2 key. Whether it was created with the same content is compared in
-- Go: SQLite does not know that {"a": 1.0} is {"a":1}.
-- Index: that of the key.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs
 WHERE tenant_id = ?1 AND idempotency_key = ?2
