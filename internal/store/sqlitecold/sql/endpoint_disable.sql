-- endpoints: disables one that is still as it was read. Index: the primary key.
UPDATE outbox_endpoints
   SET disabled_at = {{arg .Now}}, disabled_reason = {{arg .Reason}}, revision = {{arg .Fresh}}, updated_at = {{arg .Now}}
 WHERE name = {{arg .Name}} AND revision = {{arg .Revision}} AND disabled_at IS NULL
