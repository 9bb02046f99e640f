-- migrate: whether there is a table. To ask it for what it has would be an error in the server's log where it is not.
SELECT to_regclass($1) IS NOT NULL
