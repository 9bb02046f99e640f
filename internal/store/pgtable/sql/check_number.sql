-- check: whether a sequence is behind a number that it has drawn. Reads the table once, which is small. Locks nothing.
SELECT coalesce((SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END FROM {{.Sequence}} s) < (SELECT max({{.Position}}) FROM {{.Table}}), false)
