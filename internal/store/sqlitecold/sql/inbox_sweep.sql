-- inbox: takes the turn to the other table, if this one's is over; the caller empties it. In a write transaction.
-- Reads a row, and one a consumer.
UPDATE outbox_inbox_turn SET current = 1 - current, since = {{arg .Now}}
 WHERE since <= strftime('%Y-%m-%dT%H:%M:%f000Z', {{arg .Now}}, '-' || (SELECT coalesce(max(keep), 1296000000000) / 1000000.0 FROM outbox_inbox_consumers) || ' seconds')
RETURNING current
