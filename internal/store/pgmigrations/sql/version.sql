-- migrate: where golang-migrate keeps a set's version.
SELECT version, dirty FROM {{.}}
