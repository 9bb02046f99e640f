DROP TRIGGER run_outbox_insert;
