-- endpoints: disables one that is still as it was read. Locks its row. Index: the primary key.
UPDATE outbox_endpoints
   SET disabled_at = now(), disabled_reason = {{arg .Reason}}, revision = {{arg .Fresh}}, updated_at = now()
 WHERE name = {{arg .Name}} AND revision = {{arg .Revision}} AND disabled_at IS NULL
