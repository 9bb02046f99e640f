-- A pause of a destination would be one of its whole table.
DELETE FROM outbox_pauses WHERE destination <> '';

ALTER TABLE outbox_pauses
    DROP CONSTRAINT outbox_pauses_pkey,
    DROP CONSTRAINT outbox_pauses_one,
    DROP COLUMN destination,
    ADD PRIMARY KEY (table_name, topic);
