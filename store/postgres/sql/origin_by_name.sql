-- origin: as origin.sql, where pg_control_system may not be asked. $1 the table's name in its leases.
SELECT hashtextextended(current_database() || E'\x1f' || $1::text, 0)
