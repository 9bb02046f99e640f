-- inbox: as inbox_once, of many deliveries, in their order. $1 of each its ids, $2 its payload or '', $3 of each id its
-- window, as texts.
SELECT outbox_once(d.ids::uuid[], nullif(d.payload, '')::uuid, d.windows::interval[])::text
  FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS d (ids, payload, windows, n)
 ORDER BY d.n
