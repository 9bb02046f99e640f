-- dlq: dead letters by the fingerprint of their error, the largest groups first, each with its sources, types and
-- reasons, and how many groups there are. Locks nothing. Reads every letter that the filter leaves: a fingerprint
-- is computed (12 microseconds) and not stored, so that the rule can change. max() takes no uuid in PostgreSQL 15,
-- hence the texts.
WITH part AS MATERIALIZED (
    SELECT {{template "fingerprint"}} AS fingerprint, l.source, l.type, l.error_reason AS reason, count(*) AS count,
           min(l.id::text COLLATE "C") AS oldest, max(l.id::text COLLATE "C") AS newest
      FROM job_dlq l
     WHERE {{template "dlq_where" .}}
     GROUP BY 1, 2, 3, 4
), g AS (
    SELECT fingerprint, sum(count)::int AS count, min(oldest) AS oldest, max(newest) AS newest, (count(*) OVER ())::int AS groups
      FROM part
     GROUP BY fingerprint
     ORDER BY 2 DESC, 1
     LIMIT {{arg .Limit}}
)
SELECT g.fingerprint, g.count, g.groups, g.oldest::uuid AS oldest_id, g.newest::uuid AS newest_id,
       (SELECT {{template "last_error"}} FROM job_dlq l WHERE l.id = g.newest::uuid) AS sample,
       (SELECT json_agg(t) FROM (SELECT p.source, p.type, p.reason, p.count FROM part p WHERE p.fingerprint = g.fingerprint ORDER BY p.count DESC, 1, 2, 3 LIMIT 20) t)::text
  FROM g
 ORDER BY g.count DESC, 1
