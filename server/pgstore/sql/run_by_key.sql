-- run: the run of an idempotency key. Locks nothing. Index: that of the key.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs r
 WHERE r.tenant_id = {{arg .Tenant}} AND r.idempotency_key = {{arg .IdempotencyKey}}
