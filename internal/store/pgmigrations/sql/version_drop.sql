-- migrate: the version table of a set that is not there any more.
DROP TABLE IF EXISTS {{.}}
