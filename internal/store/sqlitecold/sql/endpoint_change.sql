-- endpoints: changes one that is still as it was read. Index: the primary key.
UPDATE outbox_endpoints
   SET tenant_id = nullif({{arg .Tenant}}, ''), url = {{arg .URL}}, secrets = {{arg .SecretsJSON}}, headers = {{arg .HeadersJSON}},
       timeout_ms = nullif({{arg .Milliseconds}}, 0), concurrency = nullif({{arg .Concurrency}}, 0), rate = nullif({{arg .Rate}}, 0),
       disabled_at = CASE WHEN {{arg .Off}} THEN coalesce(disabled_at, {{arg .Now}}) END, disabled_reason = nullif({{arg .Reason}}, ''),
       revision = {{arg .Fresh}}, updated_at = {{arg .Now}}, topics = {{arg .TopicsJSON}}, types = {{arg .TypesJSON}}
 WHERE name = {{arg .Name}} AND revision = {{arg .Revision}}
