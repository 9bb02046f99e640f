-- write: the locks of Strict order, held until the transaction ends. $1 the keys, sorted and without repetition, as
-- tenant, U+001F, aggregate type, U+001F, aggregate id. Two keys with one hash merely wait for each other.
-- The first number keeps these locks apart from the application's own advisory locks: it spells "outb".
SELECT pg_advisory_xact_lock(1869968482, hashtext(k)) FROM unnest($1::text[]) WITH ORDINALITY AS keys (k, n) ORDER BY n
