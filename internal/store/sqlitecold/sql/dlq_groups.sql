-- dlq: letters by the fingerprint of their error, the largest groups first. Locks nothing. Reads every letter that the
-- filter leaves: a fingerprint is computed and not stored, so that the rule can change. With two of min() and max()
-- SQLite takes the other columns from either row; so the sample is looked up.
SELECT g.fingerprint, g.source, g.reason, g.type, g.count, g.oldest, g.newest,
       (SELECT {{template "last_error"}} FROM job_dlq l WHERE l.id = g.newest)
  FROM (SELECT {{template "fingerprint"}} AS fingerprint, l.source AS source, l.error_reason AS reason, l.type AS type, count(*) AS count, min(l.id) AS oldest, max(l.id) AS newest
          FROM job_dlq l
         WHERE {{template "dlq_where" .}}
         GROUP BY 1, 2, 3, 4
         ORDER BY count(*) DESC, 1, 2, 3, 4
         LIMIT {{arg .Limit}}) g
 ORDER BY g.count DESC, 1, 2, 3, 4
