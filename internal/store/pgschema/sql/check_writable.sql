-- check: what keeps this session from writing, or no row.
SELECT CASE WHEN pg_is_in_recovery() THEN 'the server is a standby, which takes no writes: give the URL of the primary'
            ELSE format('the database takes no writes (default_transaction_read_only is on): look at ALTER DATABASE %I and ALTER ROLE %I SET, and at postgresql.conf',
                        current_database(), current_user) END
 WHERE current_setting('transaction_read_only')::bool
