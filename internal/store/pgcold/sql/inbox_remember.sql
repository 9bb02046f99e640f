-- inbox: remembers deliveries, of each its ids until one is known, and tells in their order which was (core/006_inbox
-- has the function). Locks their rows, and the turn for others' reading. Index: the primary keys.
SELECT o.which, o.known
  FROM unnest({{arg .IDs}}::uuid[], {{arg .Intents}}::uuid[], {{arg .Payloads}}::uuid[], {{arg .Windows}}::interval[], {{arg .IntentWindows}}::interval[])
       WITH ORDINALITY AS d (id, intent, payload, keep, intent_keep, n),
       LATERAL outbox_once(array_remove(ARRAY[d.id, d.intent], NULL), d.payload, ARRAY[d.keep, d.intent_keep]) AS o
 ORDER BY d.n
