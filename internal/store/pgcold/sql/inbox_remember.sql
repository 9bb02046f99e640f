-- inbox: remembers ids until one is known (core/006_inbox has the function). Locks their rows, and the turn for
-- others' reading. Index: the primary keys.
SELECT which, known FROM outbox_once({{arg .Keys}}::uuid[], {{arg .Payload}}::uuid, {{arg .Windows}}::interval[])
