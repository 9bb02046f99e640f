-- browse: which of these ids are in the table? Index: that of the id.
SELECT e.{{.ID}} FROM {{.Table}} e WHERE e.{{.ID}} = ANY ({{arg .IDs}}::uuid[])
