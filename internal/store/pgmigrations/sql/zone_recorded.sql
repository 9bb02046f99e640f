-- adopt: whether a zone is recorded (zone_record.sql).
SELECT coalesce(obj_description(to_regclass('outbox_lanes'), 'pg_class') LIKE '%without a zone are in %', false)
