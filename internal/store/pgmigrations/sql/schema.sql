-- adopt: where CREATE TABLE makes one.
SELECT current_schema()
