package testenv

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// catalogSQL lists everything in the schema as text, in an order of its own. Columns are counted as
// one sees them: those that a down migration dropped leave gaps in ordinal_position.
const catalogSQL = `
SELECT format('column %s.%s #%s %s nullable=%s default=%s generated=%s identity=%s', table_name, column_name,
              row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position),
              data_type, is_nullable, column_default, generation_expression, identity_generation)
  FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT format('policy %s %s', tablename, p) FROM pg_policies p WHERE schemaname = 'public'
UNION ALL SELECT format('view %s %s', viewname, definition) FROM pg_views WHERE schemaname = 'public'
UNION ALL SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger ' || pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT format('table %s %s %s rls=%s forced=%s', relname, relkind, reloptions, relrowsecurity, relforcerowsecurity)
  FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT format('enum %s %s', enumtypid::regtype, enumlabel) FROM pg_enum
ORDER BY 1`

// Catalog lists everything in the schema public of a database, as text: two that are equal have the
// same tables, columns, constraints, indexes, views, functions, triggers, policies and types. It
// needs no pg_dump.
func Catalog(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), catalogSQL)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
