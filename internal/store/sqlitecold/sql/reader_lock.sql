-- reader: nothing to wait for: a transaction that writes is the only one of its file. Index: none, nothing is read.
UPDATE outbox_readers SET reader = reader WHERE false
