DO $undo$
BEGIN
    DELETE FROM apps WHERE namespace = 'default' AND name = 'Default';
EXCEPTION WHEN foreign_key_violation THEN
    NULL;   -- its letters and events stay, and so it does
END
$undo$
