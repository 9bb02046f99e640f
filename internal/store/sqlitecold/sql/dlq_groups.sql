-- dlq: dead letters by the fingerprint of their error, the largest groups first, each with its sources, types and
-- reasons, and how many groups there are. Locks nothing. Reads every letter that the filter leaves: a fingerprint
-- is computed and not stored, so that the rule can change. With two of min() and max() SQLite takes the other
-- columns from either row; so the sample is looked up.
WITH part AS MATERIALIZED (
    SELECT {{template "fingerprint"}} AS fingerprint, l.source AS source, l.type AS type, l.error_reason AS reason, count(*) AS count,
           min(l.id) AS oldest, max(l.id) AS newest
      FROM job_dlq l
     WHERE {{template "dlq_where" .}}
     GROUP BY 1, 2, 3, 4
), g AS (
    SELECT fingerprint, sum(count) AS count, min(oldest) AS oldest, max(newest) AS newest, count(*) OVER () AS groups
      FROM part
     GROUP BY fingerprint
     ORDER BY 2 DESC, 1
     LIMIT {{arg .Limit}}
)
SELECT g.fingerprint, g.count, g.groups, g.oldest, g.newest,
       (SELECT {{template "last_error"}} FROM job_dlq l WHERE l.id = g.newest),
       (SELECT json_group_array(json_object('source', source, 'type', type, 'reason', reason, 'count', count))
          FROM (SELECT p.source, p.type, p.reason, p.count FROM part AS p WHERE p.fingerprint = g.fingerprint ORDER BY p.count DESC, 1, 2, 3 LIMIT 20))
  FROM g
 ORDER BY g.count DESC, 1
