-- bus: the oldest pending events, locked until the transaction ends. Skips what another taker has locked. That alone
-- would let this one publish a key's second event while the other still has its first. So what follows a pending event
-- of its key, or of its application's sequence of events without one, that is not ours is locked but not returned.
-- Index: event_outbox_undelivered in order, so that LIMIT stops it, and again for the rows up to the last one taken;
-- event_outbox_waiting for the keys that wait for a retry (of a relay that served the table before).
WITH taken AS MATERIALIZED (
    SELECT e.position, e.id, e.app_id, e.event_id, e.event_type, e.payload, e.event_key, e.status, e.published_at
      FROM event_outbox e
     WHERE e.status = 'pending'
       AND (e.next_retry_at IS NULL OR e.next_retry_at <= now())
       AND NOT EXISTS (
               SELECT FROM event_outbox b
                WHERE b.next_retry_at > now() AND b.status = 'pending'
                  AND b.app_id = e.app_id AND coalesce(b.event_key, '') = coalesce(e.event_key, '') AND b.position < e.position)
     ORDER BY e.position
     LIMIT {{arg .Limit}}
       FOR UPDATE OF e SKIP LOCKED
), others AS MATERIALIZED (
    SELECT e.app_id, coalesce(e.event_key, '') AS event_key, min(e.position) AS position
      FROM event_outbox e
     WHERE e.status = 'pending'
       AND e.position < (SELECT max(position) FROM taken)
       AND NOT EXISTS (SELECT FROM taken t WHERE t.position = e.position)
     GROUP BY 1, 2
)
SELECT t.id, t.app_id, t.event_id, t.event_type, t.payload::text, coalesce(t.event_key, ''), t.status, t.published_at::timestamptz
  FROM taken t
 WHERE NOT EXISTS (SELECT FROM others o WHERE o.app_id = t.app_id AND o.event_key = coalesce(t.event_key, '') AND o.position < t.position)
 ORDER BY t.position
