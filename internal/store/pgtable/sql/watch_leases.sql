{{- /* What tells a table's leases, relays and pauses from those of the look before, as watch statements have it: $1 the
tables' names in their leases, $2 those of the tables whose events they have, of this table the one of its Number. Index:
outbox_lanes and outbox_relays by their primary keys. */ -}}
{{define "watched_leases"}}
       concat_ws(' ',
           (SELECT concat_ws(' ', count(*), count(owner), sum(epoch))
              FROM outbox_lanes WHERE table_name = ($1::text[])[{{.Number}}]),
           (SELECT string_agg(owner::text, ' ' ORDER BY owner)
              FROM outbox_relays WHERE table_name = ($1::text[])[{{.Number}}] AND expires_at > clock_timestamp()),
           (SELECT string_agg(format('%L %L', topic, destination), ' ' ORDER BY topic, destination)
              FROM outbox_pauses WHERE table_name IN ('', ($1::text[])[{{.Number}}], ($2::text[])[{{.Number}}])))
{{- end}}
