-- migrate: where golang-migrate keeps a set's version, as its own driver makes it.
CREATE TABLE IF NOT EXISTS {{.}} (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)
