-- settle: a row that reached every destination. ?1 position, ?2 id, ?3 generation, ?4 now.
-- Inside the write transaction that settle_held.sql was asked in. The generation is compared because a settle whose
-- reply was lost is sent again, and an operator may have put the row back in between: it would be taken for delivered,
-- or dead, without having been published.
-- Index: the position's.
UPDATE {{.Table}} AS e
   SET {{if .Status}}{{.Status}} = {{.Delivered}}{{if .DeliveredAt}}, {{end}}{{end}}
       {{- if .DeliveredAt}}{{.DeliveredAt}} = ?4{{end}},
       {{.NextRetryAt}} = NULL
 WHERE {{template "claimed" .}}{{if not .DeliveredAt}} AND ?4 IS NOT NULL{{end}}
