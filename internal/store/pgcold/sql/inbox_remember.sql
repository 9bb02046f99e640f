-- inbox: as inbox_once, of many deliveries, in their order: an array of what that is given of one.
SELECT outbox_once(d.ids::uuid[], nullif(d.payload, '')::uuid, d.windows::interval[])::text
  FROM unnest({{arg .IDs}}::text[], {{arg .Payloads}}::text[], {{arg .Windows}}::text[])
       WITH ORDINALITY AS d (ids, payload, windows, n)
 ORDER BY d.n
