-- browse: which of these ids are in the table? $1 ids. Index: that of the id.
SELECT e.{{.ID}} FROM {{.Table}} e WHERE e.{{.ID}} = ANY ($1::uuid[])
