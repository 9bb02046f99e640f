-- lease: the one name of a table in its leases: its own, with its schema where outbox_lanes is in another one. $1 the
-- table, quoted, $2 what it is called if there is none. A name and not an oid: a table that is restored, or rewritten
-- and swapped, stays the same outbox. Reads the catalog only.
SELECT coalesce((SELECT CASE WHEN c.relnamespace = home.relnamespace THEN c.relname::text ELSE n.nspname || '.' || c.relname END
                   FROM pg_class c
                   JOIN pg_namespace n ON n.oid = c.relnamespace
                   LEFT JOIN pg_class home ON home.oid = to_regclass('outbox_lanes')
                  WHERE c.oid = to_regclass($1)), $2)
