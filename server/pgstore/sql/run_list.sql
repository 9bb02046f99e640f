-- run: a page of a tenant's runs, newest first. $1 tenant, $2 status and $3 app, '' for any; $4 and $5 time and id that
-- the page before ended with, before the first the greatest there are: with NULL for none the index would give the
-- order, but not the place. $6 limit. $7 bytes: the first run comes whatever its size, no further one once those before
-- it take so much; found tells how many there are within the limit. Bytes of texts are those of the text, which costs
-- no reading of it, bytes of JSON as stored; Runs.ListRuns counts again.
-- Locks nothing. Index: that of (tenant_id, created_at DESC, id DESC), or of those and what is asked for. Each
-- filter has a text of its own, because no index knows the condition "any or this one". A status that no run has would
-- be looked for in all of them. The status is one of crawl.Statuses.
SELECT {{template "run_columns"}},
       r.last_seq,
       r.found
  FROM (
        SELECT p.*, count(*) OVER () AS found, sum(p.size) OVER (ORDER BY p.created_at DESC, p.id DESC ROWS UNBOUNDED PRECEDING) - p.size AS before
          FROM (
                SELECT r.*, {{template "run_last_seq"}} AS last_seq,
                       coalesce(octet_length(r.goal), 0) + coalesce(octet_length(r.error_message), 0) + coalesce(pg_column_size(r.device_config), 0) AS size
                  FROM crawl_runs r
                 WHERE r.tenant_id = $1
                   AND (r.created_at, r.id) < ($4::timestamptz, $5::uuid)
                   AND {{if .Status}}r.status = '{{.Status}}' AND $2::text <> ''{{else}}$2::text = ''{{end}}
                   AND {{if .App}}r.app_package = $3{{else}}$3::text = ''{{end}}
                 ORDER BY r.created_at DESC, r.id DESC
                 LIMIT $6) p) r
 WHERE r.before < $7
 ORDER BY r.created_at DESC, r.id DESC
