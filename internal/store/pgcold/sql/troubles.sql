-- troubles: what hinders relays that are alive, as they have told, and what keeps them from telling: the database
-- takes no writes. A database without the column has none. Locks nothing. Reads all of outbox_relays, a few rows.
SELECT '' AS name, '' AS table_name, NULL::timestamptz AS since,
       jsonb_build_object('table', CASE WHEN pg_is_in_recovery() THEN 'the server is a standby, which takes no writes: connect to the primary'
            ELSE 'the database is read-only for this role (default_transaction_read_only is on): no relay can serve it; see ALTER DATABASE and ALTER ROLE ... SET' END) AS health
 WHERE pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool
UNION ALL
SELECT r.name, r.table_name, (to_jsonb(r) ->> 'health_since')::timestamptz, to_jsonb(r) -> 'health'
  FROM outbox_relays r
 WHERE jsonb_typeof(to_jsonb(r) -> 'health') = 'object' AND r.expires_at > clock_timestamp()
 ORDER BY 1, 2
