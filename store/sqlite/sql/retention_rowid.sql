-- retention: asks for the rowid by which a table is swept. It is only compiled: a table WITHOUT ROWID has none.
SELECT e.rowid FROM {{.Table}} AS e LIMIT 0
