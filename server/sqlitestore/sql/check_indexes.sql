-- check: the indexes that a table has.
SELECT name FROM pragma_index_list({{arg .Table}})
