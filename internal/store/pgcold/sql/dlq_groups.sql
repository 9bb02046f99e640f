-- dlq: letters by the fingerprint of their error, the largest groups first. Locks nothing. Reads every letter that the
-- filter leaves: a fingerprint is computed (12 microseconds) and not stored, so that the rule can change. max() takes
-- no uuid in PostgreSQL 15, hence the texts.
SELECT g.fingerprint, g.source, g.reason, g.type, g.count, g.oldest::uuid AS oldest_id, g.newest::uuid AS newest_id,
       (SELECT {{template "last_error"}} FROM job_dlq l WHERE l.id = g.newest::uuid) AS sample
  FROM (SELECT {{template "fingerprint"}} AS fingerprint, l.source, l.error_reason AS reason, l.type, count(*) AS count,
               min(l.id::text COLLATE "C") AS oldest, max(l.id::text COLLATE "C") AS newest
          FROM job_dlq l
         WHERE {{template "dlq_where" .}}
         GROUP BY 1, 2, 3, 4
         ORDER BY count(*) DESC, 1, 2, 3, 4
         LIMIT {{arg .Limit}}) g
 ORDER BY g.count DESC, 1, 2, 3, 4
