-- endpoints: changes one that is still as it was read. ?1 to ?14 as in endpoint_add.sql, ?15 the revision that was
-- read. Index: the primary key.
UPDATE outbox_endpoints
   SET tenant_id = nullif(?2, ''), url = ?3, secrets = ?4, headers = ?5, timeout_ms = nullif(?6, 0),
       concurrency = nullif(?7, 0), rate = nullif(?8, 0),
       disabled_at = CASE WHEN ?9 THEN coalesce(disabled_at, ?12) END, disabled_reason = nullif(?10, ''),
       revision = ?11, updated_at = ?12, topics = ?13, types = ?14
 WHERE name = ?1 AND revision = ?15
