-- retention: who reads a log: the relay of its sinks, by the name of the table, and its groups. $1 table. Locks
-- nothing. Index: the primary key; the positions are few, since those that say nothing more are removed.
SELECT DISTINCT p.table_name FROM outbox_log_positions p WHERE p.table_name = $1 OR starts_with(p.table_name, $1 || '/')
