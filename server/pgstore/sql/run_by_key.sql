-- run: the run of an idempotency key, and whether it was created with the same content. $1 tenant, $2 key, $3 app, $4
-- device configuration, $5 steps, $6 goal, $7 crawler. Locks nothing. Index: that of the key.
SELECT {{template "run_columns"}},
       {{template "run_last_seq"}},
       r.app_package = $3 AND r.device_config IS NOT DISTINCT FROM $4::text::jsonb AND r.max_steps = $5
           AND coalesce(r.goal, '') = $6::text AND r.crawler = $7
  FROM crawl_runs r
 WHERE r.tenant_id = $1 AND r.idempotency_key = $2
