-- lease: the rows of a table's lanes, made once. ?1 table, ?2 number of lanes.
INSERT INTO outbox_lanes (table_name, lane)
WITH RECURSIVE number (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM number WHERE lane + 1 < ?2)
SELECT ?1, lane FROM number WHERE true
ON CONFLICT DO NOTHING
