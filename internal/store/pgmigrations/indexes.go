package pgmigrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed indexes/adr.sql
	adrSQL string
	//go:embed indexes/lean.sql
	leanSQL string
	//go:embed indexes/tenants.sql
	tenantsSQL string
)

// IndexSet names a form that some indexes of outbox_events can have.
type IndexSet string

// The forms: two of ADR-004's indexes, and two of the one by which tenants share a claim. ADR-004's
// five serve its queries on delivered rows too. The lean form is one index, of failed rows only,
// because each index costs each INSERT (docs/operations/scaling.md#indexes has the figures). A
// table of one tenant needs no index by tenant.
const (
	ADRIndexes  IndexSet = "adr"
	LeanIndexes IndexSet = "lean"
	TenantIndex IndexSet = "tenants"
	OneTenant   IndexSet = "one-tenant"
)

// IndexSets are all forms.
var IndexSets = []IndexSet{ADRIndexes, LeanIndexes, TenantIndex, OneTenant}

// Full is the form that has all indexes of which s has some, or none.
func (s IndexSet) Full() IndexSet {
	if s == TenantIndex || s == OneTenant {
		return TenantIndex
	}
	return ADRIndexes
}

// Index is one of them as the database has it.
type Index struct {
	Name       string   `json:"name"`
	Set        IndexSet `json:"set"`
	Definition string   `json:"definition"`
}

var createIndex = regexp.MustCompile(`CREATE INDEX (\w+)\s+ON `)

// indexStatements returns the statements of a set by the names of their indexes.
func indexStatements(set IndexSet) (names []string, create map[string]string, err error) {
	text, known := map[IndexSet]string{
		ADRIndexes: adrSQL, LeanIndexes: leanSQL, TenantIndex: tenantsSQL, OneTenant: "",
	}[set]
	if !known {
		return nil, nil, fmt.Errorf("there are no indexes %q: it is one of %q", set, IndexSets)
	}
	create = map[string]string{}
	for statement := range strings.SplitSeq(text, ";") {
		if found := createIndex.FindStringSubmatch(statement); found != nil {
			names = append(names, found[1])
			create[found[1]] = statement[strings.Index(statement, "CREATE"):]
		}
	}
	return names, create, nil
}

// Indexes reads which of these indexes there are. It changes nothing.
func Indexes(ctx context.Context, databaseURL string) ([]Index, error) {
	conn, _, err := connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read indexes: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	indexes, _, err := readIndexes(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("read indexes: %w", err)
	}
	return indexes, nil
}

// readIndexes returns the indexes, and the names of those that are there and complete.
func readIndexes(ctx context.Context, conn *pgx.Conn) (indexes []Index, valid map[string]IndexSet, err error) {
	names, _, err := indexStatements(ADRIndexes)
	if err != nil {
		return nil, nil, err
	}
	byTenant, _, err := indexStatements(TenantIndex)
	if err != nil {
		return nil, nil, err
	}
	valid = map[string]IndexSet{}
	var x Index
	var partial, complete bool
	row := []any{&x.Name, &partial, &complete, &x.Definition}
	err = each(ctx, conn, "indexes", []any{slices.Concat(names, byTenant)}, row, func() error {
		if x.Set = ADRIndexes; slices.Contains(byTenant, x.Name) {
			x.Set = TenantIndex
		} else if partial {
			x.Set = LeanIndexes
		}
		if complete {
			valid[x.Name] = x.Set
		}
		indexes = append(indexes, x)
		return nil
	})
	return indexes, valid, err
}

// SwitchIndexes gives some indexes of outbox_events another form, and returns the names of those
// that changed. Writers go on: each is built beside the old one, concurrently, and takes its name
// in a moment. Those that the form does not have go when the others are there. A process that is
// killed leaves indexes of both forms, or an incomplete one, and the next call puts that right.
func SwitchIndexes(
	ctx context.Context, databaseURL string, set IndexSet, progress func(index string),
) (changed []string, err error) {
	names, create, err := indexStatements(set)
	if err != nil {
		return nil, err
	}
	all, _, err := indexStatements(set.Full())
	if err != nil {
		return nil, err
	}
	err = locked(ctx, databaseURL, func(conn *pgx.Conn) error {
		indexes, valid, err := readIndexes(ctx, conn)
		if err != nil {
			return err
		}
		for _, name := range names {
			if valid[name] == set {
				continue
			}
			progress(name)
			if err := replaceIndex(ctx, conn, name, create[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			changed = append(changed, name)
		}
		for _, name := range all {
			if create[name] != "" {
				continue
			}
			for _, gone := range []string{name, name + building} {
				if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+gone); err != nil {
					return fmt.Errorf("%s: %w", gone, err)
				}
			}
			if slices.ContainsFunc(indexes, func(x Index) bool { return x.Name == name }) {
				changed = append(changed, name)
			}
		}
		return nil
	})
	if err != nil {
		return changed, fmt.Errorf("switch indexes: %w", err)
	}
	return changed, nil
}

// building ends the name of an index until it is complete.
const building = "_new"

func replaceIndex(ctx context.Context, conn *pgx.Conn, name, create string) error {
	built := name + building
	for _, statement := range []string{
		"DROP INDEX CONCURRENTLY IF EXISTS " + built, // of a process that was killed
		strings.Replace(create, "CREATE INDEX "+name, "CREATE INDEX CONCURRENTLY "+built, 1),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	swap := "BEGIN; " + briefly + "DROP INDEX IF EXISTS " + name + "; ALTER INDEX " + built + " RENAME TO " + name +
		"; COMMIT"
	return patiently(ctx, func() error {
		_, err := conn.Exec(ctx, swap)
		if err == nil {
			return nil
		}
		_, undo := conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, undo)
	})
}
