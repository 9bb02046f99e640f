-- written: the highest position that a table ever had. Reads no row of it.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = {{.TableName}}), 0)
