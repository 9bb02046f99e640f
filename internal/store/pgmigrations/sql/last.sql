-- adopt: the last number that was given to a row of before. Those of new rows begin where their sequence did; once the
-- column is an identity, nothing is left to fill.
SELECT coalesce(max({{.Column}}), 0) FROM {{.Table}}
 WHERE {{.Column}} < (SELECT s.seqstart FROM pg_sequence s WHERE s.seqrelid = '{{.Sequence}}'::regclass)
