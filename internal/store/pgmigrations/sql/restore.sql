DO $undo$
DECLARE
    policy RECORD;
BEGIN
    FOR policy IN SELECT polname FROM pg_policy
                   WHERE polrelid = '{{.Table}}'::regclass AND polname <> ALL (ARRAY[{{.Policies}}]::name[]) LOOP
        EXECUTE format('DROP POLICY %I ON {{.Table}}', policy.polname);
    END LOOP;
    ALTER TABLE {{.Table}} {{if .Secured}}ENABLE{{else}}DISABLE{{end}} ROW LEVEL SECURITY, {{if not .Forced}}NO {{end}}FORCE ROW LEVEL SECURITY;
    ALTER TABLE {{.Table}} OWNER TO {{.Owner}};
END
$undo$
