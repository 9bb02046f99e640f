-- retention: removes rows that were found, if they are still due and the caller holds the table's
-- maintenance. Places are tids, and parts tableoids. Locks the rows. Returns how many.
-- A row that cannot be stored fails the statement: it would be gone.
-- By place, so without an index; by id as well, because after a vacuum another row may stand there.
WITH gone AS (
    DELETE FROM {{.Table}} e
     USING unnest({{arg .Places}}::text[]::tid[], {{arg .Parts}}::oid[], {{arg .IDs}}::uuid[]) AS found (at, part, id)
     WHERE e.ctid = found.at AND e.tableoid = found.part AND e.{{.ID}} = found.id
       AND {{template "removable" .}}
       AND EXISTS (SELECT FROM outbox_maintenance m WHERE m.table_name = {{arg .Name}} AND m.owner = {{arg .Owner}} AND m.expires_at > clock_timestamp())
    RETURNING e.{{.ID}} AS id, {{if .Position}}e.{{.Position}}::bigint{{else}}0::bigint{{end}} AS position, CASE WHEN {{arg .Archive}}::boolean THEN to_jsonb(e) END AS row
), kept AS (
    INSERT INTO outbox_archive (table_name, id, position, row)
    SELECT {{arg .Name}}::text, g.id, g.position, g.row FROM gone g WHERE {{arg .Archive}}::boolean
)
SELECT count(*) FROM gone
