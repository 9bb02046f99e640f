-- inbox: what one of the tables remembers of an id. Index: the primary key.
SELECT i.payload FROM {{.Table}} AS i WHERE i.key = {{arg .Key}}{{if .Cut}} AND i.at > {{arg .Cut}}{{end}}
