-- write: the locks of Strict order, held until the transaction ends. $1 the keys, sorted and without repetition, as
-- tenant, U+001F, aggregate type, U+001F, aggregate id. Two keys with one hash merely wait for each other.
-- The first number keeps these locks apart from the application's own advisory locks: it spells "outb".
-- Any login of the database may take such a lock and keep it. So one is waited for 30 s at most, or as long as the
-- transaction's own lock_timeout says where that is shorter; after that the setting is what it was.
WITH "before" AS MATERIALIZED (
    SELECT current_setting('lock_timeout') AS "was",
           set_config('lock_timeout',
                      CASE WHEN current_setting('lock_timeout')::interval BETWEEN '1 ms' AND '30 s'
                           THEN current_setting('lock_timeout') ELSE '30s' END, true)),
"locked" AS MATERIALIZED (
    SELECT count("l") FROM (
        SELECT pg_advisory_xact_lock(1869968482, hashtext("k")) AS "l"
          FROM "before", unnest($1::text[]) WITH ORDINALITY AS "keys" ("k", "n") ORDER BY "n") AS "each")
SELECT set_config('lock_timeout', "was", true) FROM "before", "locked"
