-- inbox: empties the table whose turn it is. SQLite empties a table whole, without looking at its rows.
DELETE FROM {{.Table}}
