-- inbox: remembers the ids of a delivery until one is known, and tells which was and its payload, such as (0,)
-- (core/006_inbox has the function). Its ids and of each the window are arrays as texts; a payload may be ''. Locks
-- their rows, and the turn for others' reading. Index: the primary keys.
-- Apart from inbox_remember, because nearly every call is of one delivery; and no FROM, which would set up a scan of
-- the function (measured, the guard alone in its transaction: 87 us; 107 with it).
SELECT outbox_once({{arg .IDs}}::uuid[], nullif({{arg .Payloads}}::text, '')::uuid, {{arg .Windows}}::interval[])::text
