-- status: for each table whether it exists, its name as it is spelled, and its columns. One JSON object a row.
-- Reads the schema only.
SELECT 'table', json_object(
           'name', n.value, 'exists', json(iif(s.name IS NULL, 'false', 'true')),
           'readable', json(iif(s.name IS NULL, 'false', 'true')), 'leased', coalesce(s.name, n.value),
           'columns', (SELECT json_group_array(c.name) FROM pragma_table_xinfo(s.name) AS c))
  FROM json_each({{arg .Names}}) AS n
  LEFT JOIN sqlite_schema AS s ON s.name = n.value COLLATE NOCASE AND s.type IN ('table', 'view')
