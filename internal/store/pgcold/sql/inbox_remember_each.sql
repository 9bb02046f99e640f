-- inbox: remembers each of many ids by itself, and tells in their order which were known (core/006_inbox has the
-- function). Locks their rows, and the turn for others' reading. Index: the primary keys.
SELECT o.which
FROM unnest({{arg .Keys}}::uuid[], {{arg .Windows}}::interval[]) WITH ORDINALITY AS id (key, keep, n),
     LATERAL outbox_once(ARRAY[id.key], NULL, ARRAY[id.keep]) AS o
ORDER BY id.n
