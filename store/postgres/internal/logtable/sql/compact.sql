-- settle: removes the positions of a log that say nothing of any lane that another does not. $1 table, $2 number of
-- lanes. Locks the rows it deletes. One that is written meanwhile is not seen, and stays. Index: the primary key.
DELETE FROM outbox_log_positions p
 WHERE p.table_name = $1
   AND p.id <> ALL (ARRAY(SELECT n.id FROM generate_series(0, $2::int - 1) AS l (lane) CROSS JOIN LATERAL ({{template "log_place"}}) n))
