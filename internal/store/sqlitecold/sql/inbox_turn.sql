-- inbox: which of the two tables is written to. Reads a row.
SELECT current FROM outbox_inbox_turn
