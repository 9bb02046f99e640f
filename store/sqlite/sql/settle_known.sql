-- settle: is a row, which is to be settled as delivered, undelivered no more? ?1 position, ?2 id. A settle whose reply
-- was lost has settled it. One that was put back since, in another generation, is undelivered. Index: the position's.
SELECT NOT EXISTS (SELECT 1 FROM {{.Table}} AS e
                    WHERE e.{{.Position}} = ?1 AND {{template "same_id" .}} AND e.{{template "undelivered" .}})
