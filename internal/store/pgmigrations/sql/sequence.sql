-- adopt: what new rows are numbered by, above anything that the rows of now will be: a row takes 28 bytes at least.
-- Whoever may insert may draw from it, as from the identity column that it becomes.
DO $do$
BEGIN
    EXECUTE format('CREATE SEQUENCE {{.Sequence}} START WITH %s', pg_relation_size('{{.Table}}') / 28 + 1);
END
$do$;
GRANT USAGE ON SEQUENCE {{.Sequence}} TO PUBLIC
