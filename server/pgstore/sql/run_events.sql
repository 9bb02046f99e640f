-- run: a page of a run's log. The first event comes whatever its size, no further one once those before it take
-- .Bytes. Bytes as stored: to know them as text, or uncompressed, would be to read them; ListEvents stops by those.
-- Locks nothing. Index: the unique one on (crawl_id, seq), in order. The payload is text, as the relay reads it: jsonb
-- is spelled out once, by the server. The time may be one without a zone, as in run_get.sql.
-- The event's own size is subtracted, not excluded from the frame: with EXCLUDE CURRENT ROW each row sums the page
-- anew.
SELECT e.seq, e.event_id, e.event_type, e.created_at::timestamptz, e.payload::text
  FROM (
        SELECT l.*, sum(pg_column_size(l.payload)) OVER (ORDER BY l.seq ROWS UNBOUNDED PRECEDING) - pg_column_size(l.payload) AS before
          FROM crawl_events l
         WHERE l.crawl_id = {{arg .Run}} AND l.tenant_id = {{arg .Tenant}} AND l.seq > {{arg .After}}
         ORDER BY l.seq
         LIMIT {{arg .Limit}}) e
 WHERE e.before < {{arg .Bytes}}
 ORDER BY e.seq
