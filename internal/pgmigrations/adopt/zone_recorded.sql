-- adopt: the zone that was recorded, or '', as store/postgres reads it.
SELECT coalesce(substring(obj_description(to_regclass('outbox_lanes'), 'pg_class') FROM 'without a zone are in ([A-Za-z0-9_+/-]+)'), '')
