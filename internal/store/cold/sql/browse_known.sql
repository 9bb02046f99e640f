-- browse: which of these ids are in the table? Index: that of the id.
SELECT e.{{.ID}} FROM {{.Table}} AS e WHERE e.{{.ID}} {{template "among" (arg .IDs)}}
