-- lease: the rows of a table's lanes, made once. $1 table, $2 number of lanes.
INSERT INTO outbox_lanes (table_name, lane)
SELECT $1, lane FROM generate_series(0, $2::int - 1) AS lane
ON CONFLICT DO NOTHING
