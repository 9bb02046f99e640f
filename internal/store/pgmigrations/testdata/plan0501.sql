-- The tables of 05-01 as docs/seeds.md has them; the seed itself names columns only.
CREATE TABLE apps (
  id UUID PRIMARY KEY,
  name TEXT NOT NULL,
  namespace TEXT NOT NULL,
  settings JSONB,
  updated_at TIMESTAMP NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX idx_apps_namespace ON apps (lower(namespace));

CREATE TABLE job_dlq (
  id UUID PRIMARY KEY,
  source TEXT NOT NULL DEFAULT 'job' CHECK (source IN ('job', 'event')),
  original_job_id UUID NOT NULL,
  app_id UUID NOT NULL REFERENCES apps (id) ON DELETE RESTRICT,
  user_id UUID,
  request_id UUID,
  type TEXT NOT NULL,
  payload JSONB NOT NULL,
  error_reason TEXT NOT NULL CHECK (error_reason IN ('MaxRetries', 'Validation', 'HandlerMissing', 'RunnerUnavailable', 'Timeout', 'Panic',
    'DeliveryFailed', 'DeserializationFailed', 'DuplicateEvent', 'HandlerTimeout')),
  attempts INTEGER NOT NULL CHECK (attempts > 0),
  error_history JSONB NOT NULL CHECK (jsonb_typeof(error_history) = 'array'),
  replayed_at TIMESTAMP
);
CREATE INDEX idx_job_dlq_pending_source ON job_dlq (source, error_reason) WHERE replayed_at IS NULL;
ALTER TABLE job_dlq ENABLE ROW LEVEL SECURITY;
CREATE POLICY job_dlq_app ON job_dlq USING (app_id = nullif(current_setting('app.current_tenant', true), '')::uuid);

CREATE TABLE event_outbox (
  id UUID PRIMARY KEY,
  app_id UUID NOT NULL REFERENCES apps (id) ON DELETE RESTRICT,
  event_id UUID NOT NULL UNIQUE,
  event_type TEXT NOT NULL,
  payload JSONB NOT NULL,
  status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'published', 'failed')),
  published_at TIMESTAMP
);
CREATE INDEX idx_event_outbox_pending ON event_outbox (status, id) WHERE status = 'pending';

-- Its purge functions, with names of their own for the parameters. Both are in docs/seeds.md; the bodies are not.
CREATE FUNCTION purge_event_outbox(days INT DEFAULT 7) RETURNS INT LANGUAGE sql AS $fn$
  WITH gone AS (DELETE FROM event_outbox WHERE status = 'published' AND published_at < now() - days * interval '1 day' RETURNING 1)
  SELECT count(*)::int FROM gone
$fn$;
COMMENT ON FUNCTION purge_event_outbox(INT) IS 'called by cron';
REVOKE ALL ON FUNCTION purge_event_outbox(INT) FROM PUBLIC;
CREATE FUNCTION purge_job_dlq(p_older_than_days BIGINT DEFAULT 30, p_most INT DEFAULT 1000) RETURNS VOID LANGUAGE sql SECURITY DEFINER AS $fn$
  DELETE FROM job_dlq WHERE id IN (SELECT id FROM job_dlq WHERE replayed_at < now() - p_older_than_days * interval '1 day' LIMIT p_most)
$fn$;
