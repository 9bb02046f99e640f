-- run: a page of a tenant's runs, newest first, behind the place that the page before ended with. The first run comes
-- whatever its size, no further one once those before it take .Bytes; found tells how many there are within the limit.
-- Bytes of texts are those of the text, which costs no reading of it, bytes of JSON as stored; ListRuns counts again.
-- Locks nothing. Index: that of (tenant_id, created_at DESC, id DESC), or of those and what is asked for. Each
-- filter has a text of its own, because no index knows the condition "any or this one". A status that no run has would
-- be looked for in all of them: indexes are partial, so it is no argument. It is one of crawl.Statuses.
SELECT {{template "run_columns"}},
       r.last_seq,
       r.found
  FROM (
        SELECT p.*, count(*) OVER () AS found, sum(p.size) OVER (ORDER BY p.created_at DESC, p.id DESC ROWS UNBOUNDED PRECEDING) - p.size AS before
          FROM (
                SELECT r.*, {{template "run_last_seq"}} AS last_seq,
                       coalesce(octet_length(r.goal), 0) + coalesce(octet_length(r.error_message), 0) + coalesce(pg_column_size(r.device_config), 0) AS size
                  FROM crawl_runs r
                 WHERE r.tenant_id = {{arg .Tenant}}
                   {{- if not .Begins}} AND (r.created_at, r.id) < ({{arg .Before.CreatedAt}}::timestamptz, {{arg .Before.ID}}::uuid){{end}}
                   {{- if .Status}} AND r.status = '{{.Status}}'{{end}}
                   {{- with .AppPackage}} AND r.app_package = {{arg .}}{{end}}
                 ORDER BY r.created_at DESC, r.id DESC
                 LIMIT {{arg .Limit}}) p) r
 WHERE r.before < {{arg .Bytes}}
 ORDER BY r.created_at DESC, r.id DESC
