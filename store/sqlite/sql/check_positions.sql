-- check: are positions of a table given once only? ?1 its name. The dot is its database. A table without AUTOINCREMENT
-- gives its last position again once that row is deleted. Locks nothing.
SELECT EXISTS (SELECT 1 FROM {{.}}.sqlite_schema
                WHERE type = 'table' AND lower(name) = lower(?1) AND upper(sql) LIKE '%AUTOINCREMENT%')
