-- migrate: records a set's version. $1 version, $2 whether a file is under way.
INSERT INTO {table} (version, dirty) VALUES ($1, $2)
