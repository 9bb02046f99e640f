-- conditions: of which tables old rows were removed once, and no more. Locks nothing. Index: the primary key.
SELECT 'warning', m.table_name, format('old rows of %s were last removed at %s', m.table_name, to_char(m.ran_at, 'YYYY-MM-DD HH24:MI')), m.ran_at, NULL::text
  FROM outbox_maintenance m
 WHERE m.ran_at < {{arg .Now}}::timestamptz - make_interval(secs => {{arg .ForgottenSeconds}}::float8)
   AND EXISTS (SELECT FROM outbox_relays r WHERE r.table_name = m.table_name AND r.expires_at > clock_timestamp())
