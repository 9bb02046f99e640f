-- endpoints: changes one that is still as it was read. Locks its row. Index: the primary key.
UPDATE outbox_endpoints
   SET tenant_id = nullif({{arg .Tenant}}, ''), url = {{arg .URL}}, secrets = {{arg .SecretsJSON}}::jsonb, headers = {{arg .HeadersJSON}}::jsonb,
       timeout_ms = nullif({{arg .Milliseconds}}::int, 0), concurrency = nullif({{arg .Concurrency}}::int, 0), rate = nullif({{arg .Rate}}::float8, 0),
       disabled_at = CASE WHEN {{arg .Off}}::bool THEN coalesce(disabled_at, now()) END, disabled_reason = nullif({{arg .Reason}}, ''),
       revision = {{arg .Fresh}}, topics = {{arg .TopicsJSON}}::jsonb, types = {{arg .TypesJSON}}::jsonb, updated_at = now()
 WHERE name = {{arg .Name}} AND revision = {{arg .Revision}}
