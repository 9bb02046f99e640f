-- watch: whether one of several tables has undelivered rows, and what tells its leases from those of the look before.
-- $1 the tables' names in their leases, $2 those of the tables whose events they have, $3 which have undelivered rows
-- anyhow: of this table the {{.Number}}th. Locks nothing. Index: the partial one on the position of undelivered rows;
-- outbox_lanes and outbox_relays by their primary keys.
SELECT {{.Number}},
       ($3::bool[])[{{.Number}}] OR
       {{if .Transaction}}{{template "log_unsettled" .}},
       {{- else -}}
       -- Not EXISTS, which leaves ORDER BY out, and with it the index.
       (SELECT true FROM {{.Table}} e WHERE e.{{template "undelivered" .}} ORDER BY e.{{.Position}} LIMIT 1) IS NOT NULL,
       {{- end}}
       concat_ws(' ',
           (SELECT concat_ws(' ', count(*), count(owner), sum(epoch))
              FROM outbox_lanes WHERE table_name = ($1::text[])[{{.Number}}]),
           (SELECT string_agg(owner::text, ' ' ORDER BY owner)
              FROM outbox_relays WHERE table_name = ($1::text[])[{{.Number}}] AND expires_at > clock_timestamp()),
           (SELECT string_agg(format('%L %L', topic, destination), ' ' ORDER BY topic, destination)
              FROM outbox_pauses WHERE table_name IN ('', ($1::text[])[{{.Number}}], ($2::text[])[{{.Number}}])))
