-- inbox: remembers the ids of a delivery until one is known, and tells which was and its payload, such as (0,)
-- (core/006_inbox has the function). $1 its ids, $2 its payload or '', $3 of each id its window, as texts. Locks their
-- rows, and the turn for others' reading. Index: the primary keys.
-- Apart from inbox_remember, because nearly every call is of one delivery; and no FROM, which would set up a scan of
-- the function (measured, the guard alone in its transaction: 87 us; 107 with it).
SELECT outbox_once($1::text::uuid[], nullif($2::text, '')::uuid, $3::text::interval[])::text
