-- Nothing: an older program works with the wider key as well, and the narrower one would refuse what has been archived since.
SELECT 1;
