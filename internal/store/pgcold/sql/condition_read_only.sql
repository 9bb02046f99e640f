-- conditions: whether the server takes no writes of this role. Locks nothing. A transaction that only reads
-- is read-only itself, whatever the session's default is.
SELECT 'critical', 'database', CASE WHEN pg_is_in_recovery() THEN 'the server is a standby, which takes no writes'
            ELSE 'the database is read-only for this role (default_transaction_read_only is on)' END, NULL::timestamptz, NULL::text
 WHERE pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool
