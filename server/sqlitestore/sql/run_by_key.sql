-- run: the run of an idempotency key. Index: that of the key.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}}
  FROM crawl_runs
 WHERE tenant_id = {{arg .Tenant}} AND idempotency_key = {{arg .IdempotencyKey}}
