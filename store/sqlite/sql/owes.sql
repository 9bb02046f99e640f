-- owes: whether outbox_deliveries has rows of a lane and a sink that are neither delivered nor dead. ?1 queue, ?2 lane.
-- Index: outbox_deliveries_lanes.
SELECT EXISTS (SELECT 1 FROM outbox_deliveries WHERE queue = ?1 AND lane = ?2 AND status = 'pending')
