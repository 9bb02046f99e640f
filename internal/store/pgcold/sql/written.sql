-- written: how many rows were ever written into a table, by the server's statistics; those of transactions that were
-- rolled back are among them. Reads no row of it.
SELECT coalesce(pg_stat_get_tuples_inserted(to_regclass({{arg .Table}}::text)), 0)
