-- endpoints: disables one that is still as it was read. $1 name, $2 the revision that was read, $3 why, $4 the new
-- revision. Locks its row. Index: the primary key.
UPDATE outbox_endpoints
   SET disabled_at = now(), disabled_reason = $3, revision = $4, updated_at = now()
 WHERE name = $1 AND revision = $2 AND disabled_at IS NULL
