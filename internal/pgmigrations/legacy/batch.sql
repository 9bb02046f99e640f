-- legacy: fills the next rows, oldest first, so that position keeps the order in which they were written. $1 created_at
-- to start from (rows before it are done), $2 rows, $3 last position given out. Returns rows filled, last position,
-- last created_at. Index: the one made by prepare.sql. Without the bound in $1 each batch would walk over the dead
-- entries of all before it.
WITH todo AS MATERIALIZED (
    SELECT id, created_at
      FROM {{.Table}}
     WHERE position IS NULL AND created_at >= $1
     ORDER BY created_at, id
     LIMIT $2
       FOR NO KEY UPDATE
), numbered AS (
    SELECT id, created_at, $3::bigint + row_number() OVER (ORDER BY created_at, id) AS position FROM todo
), filled AS (
    -- coalesce: the seed's UPDATE may have been run by hand before, and whoever writes the new columns already knows
    -- better.
    UPDATE {{.Table}} t
       SET event_topic    = coalesce(t.event_topic, t.type),
           occurred_at    = coalesce(t.occurred_at, t.created_at),
           source_bc      = coalesce(t.source_bc, 'default'),
           tenant_id      = coalesce(t.tenant_id, 'default'),
           schema_version = coalesce(t.schema_version, 1),
           retry_count    = coalesce(t.retry_count, 0),
           status         = CASE t.status WHEN 'ERR' THEN 'DEAD' ELSE t.status END,
           position       = n.position
      FROM numbered n
     WHERE t.id = n.id
    RETURNING n.position, n.created_at
)
SELECT count(*), coalesce(max(position), $3), coalesce(max(created_at), $1)::text FROM filled
