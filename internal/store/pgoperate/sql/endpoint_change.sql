-- endpoints: changes one that is still as it was read. $1 to $13 as in endpoint_add.sql, $14 the revision that was
-- read. Locks its row. Index: the primary key.
UPDATE outbox_endpoints
   SET tenant_id = nullif($2, ''), url = $3, secrets = $4::jsonb, headers = $5::jsonb, timeout_ms = nullif($6::int, 0),
       concurrency = nullif($7::int, 0), rate = nullif($8::float8, 0),
       disabled_at = CASE WHEN $9::bool THEN coalesce(disabled_at, now()) END, disabled_reason = nullif($10, ''),
       revision = $11, topics = $12::jsonb, types = $13::jsonb, updated_at = now()
 WHERE name = $1 AND revision = $14
