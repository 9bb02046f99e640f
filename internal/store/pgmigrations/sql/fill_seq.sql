-- adopt: numbers the next rows of the log within their runs, in the order of id. $1 id to begin at, $2 rows, $3 id to
-- end at: above it a lower id may still be uncommitted. Index: the primary key; crawl_events_crawl_id_seq_key for the
-- number before.
WITH todo AS MATERIALIZED (
    SELECT id, crawl_id FROM {{.Table}}
     WHERE seq IS NULL AND id >= $1::text::bigint AND id <= $3::bigint
     ORDER BY id LIMIT $2
       FOR NO KEY UPDATE NOWAIT
), last AS (
    SELECT r.crawl_id, coalesce((SELECT max(e.seq) FROM {{.Table}} e WHERE e.crawl_id = r.crawl_id), 0) AS seq
      FROM (SELECT DISTINCT crawl_id FROM todo) r
), numbered AS (
    SELECT t.id, l.seq + row_number() OVER (PARTITION BY t.crawl_id ORDER BY t.id) AS seq FROM todo t JOIN last l USING (crawl_id)
), filled AS (
    UPDATE {{.Table}} t SET seq = numbered.seq, event_id = coalesce(t.event_id, outbox_uuidv7())
      FROM numbered WHERE t.id = numbered.id RETURNING 1
)
SELECT (SELECT count(*) FROM filled), $3::bigint, coalesce((SELECT id FROM todo ORDER BY id DESC LIMIT 1)::text, $1::text)
