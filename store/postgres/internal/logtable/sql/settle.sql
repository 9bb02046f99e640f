-- settle: notes how far some lanes of a log have come. $1 table, $2 owner, $3 lanes, $4 epochs; $5 the lanes that it is
-- noted of, as bits, $6 position, $7 snapshot, $8 and $9 those of a pass over late rows, or NULL, $10 the era. Returns
-- the lanes that the caller still holds, as bits, NULL if none.
-- Only of those it is noted, and in that era only: what has been settled is claimed again after it. A lane that changes
-- hands at this moment does no harm: the note is true whoever writes it. Locks nothing but its own row. Index:
-- outbox_lanes and the era by their primary keys.
WITH held AS MATERIALIZED (
    {{template "held"}}
), mine AS MATERIALIZED (
    SELECT bit_or(1::bigint << h.lane) AS lanes FROM held h
), noted AS (
    INSERT INTO outbox_log_positions (table_name, position, lanes, snapshot, late_position, late_snapshot)
    SELECT $1, $6, m.lanes & $5::bigint, $7::text::pg_snapshot, $8, $9::text::pg_snapshot
      FROM mine m
     WHERE m.lanes & $5::bigint <> 0 AND EXISTS (SELECT FROM outbox_log_era WHERE one AND era = $10::text::uuid)
)
SELECT m.lanes FROM mine m
