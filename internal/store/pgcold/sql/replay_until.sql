-- replay: the time by the database's clock, so that what is put back cannot be chosen again. Reads nothing.
SELECT now()
