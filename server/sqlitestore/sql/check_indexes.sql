-- check: the indexes that a table has. ?1 its name.
SELECT name FROM pragma_index_list(?1)
