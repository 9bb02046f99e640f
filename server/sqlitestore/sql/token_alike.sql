-- token: a tenant with tokens whose name differs from that of a new token in case only. Not one of apps: a dead letter
-- makes a row there, for whatever tenant its producer has named. Index: none; an installation has some dozens of
-- tokens.
SELECT k.tenant_id FROM outbox_tokens k WHERE lower(k.tenant_id) = lower({{arg .Tenant}}) AND k.tenant_id <> {{arg .Tenant}} LIMIT 1
