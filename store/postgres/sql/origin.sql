-- origin: the hash that tells a table's events from those of all others. $1 the table's name in its leases. A
-- database's name tells it from the others of its server, and from copies of itself there; the system identifier, which
-- a standby shares with its primary, from those of other servers.
SELECT hashtextextended(system_identifier::text || E'\x1f' || current_database() || E'\x1f' || $1::text, 0) FROM pg_control_system()
