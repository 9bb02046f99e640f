-- retention: removes rows that were found, if they are still due and the caller holds the table's maintenance. $1
-- microseconds since delivery, $2 table, $3 owner, $4 places (tids), $5 parts (tableoids), $6 ids, $7 whether into the
-- archive table. Locks the rows. Returns how many.
-- A row that cannot be stored fails the statement: it would be gone.
-- By place, so without an index; by id as well, because after a vacuum another row may stand there.
WITH gone AS (
    DELETE FROM {{.Table}} e
     USING unnest($4::text[]::tid[], $5::oid[], $6::uuid[]) AS found (at, part, id)
     WHERE e.ctid = found.at AND e.tableoid = found.part AND e.{{.ID}} = found.id
       AND {{template "removable" .}}
       AND EXISTS (SELECT FROM outbox_maintenance m WHERE m.table_name = $2 AND m.owner = $3 AND m.expires_at > clock_timestamp())
    RETURNING e.{{.ID}} AS id, {{if .Position}}e.{{.Position}}::bigint{{else}}0::bigint{{end}} AS position, CASE WHEN $7::boolean THEN to_jsonb(e) END AS row
), kept AS (
    INSERT INTO outbox_archive (table_name, id, position, row)
    SELECT $2, g.id, g.position, g.row FROM gone g WHERE $7::boolean
)
SELECT count(*) FROM gone
