package pgmigrations

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

var (
	//go:embed adopt/tables.sql
	shapesSQL string
	//go:embed adopt/functions.sql
	functionsSQL string
)

// origin says which file makes a table.
type origin struct {
	set     string
	version uint
	table   string
}

var makesTable = regexp.MustCompile(`(?m)^ *CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(`)

// origins reads from the embedded files which tables the sets bring, in the order in which they do.
func origins(sets []string) (all []origin, err error) {
	for _, set := range sets {
		for _, file := range embedded.List(set) {
			text, err := upFile(set, file.Name)
			if err != nil {
				return nil, err
			}
			for _, found := range makesTable.FindAllStringSubmatch(text, -1) {
				all = append(all, origin{set, file.Version, found[1]})
			}
		}
	}
	return all, nil
}

func upFile(set, name string) (string, error) {
	text, err := fs.ReadFile(files, set+"/"+name+".up.sql")
	if err != nil {
		return "", fmt.Errorf("read %s/%s: %w", set, name, err)
	}
	return string(text), nil
}

// reference is what the embedded files make of an empty schema.
type reference struct {
	made      map[string]*shape  // by table, after the file that makes it
	whole     map[string]*shape  // after the last file
	indexes   map[string][]index // all that a table has at any time
	functions map[string]string  // definitions by name
}

var errRolledBack = errors.New("rolled back")

// readReference runs the files of core and of the sets in a schema of their own, reads the catalog, and rolls back. So
// there is no second list of what the tables look like.
func readReference(ctx context.Context, conn *pgx.Conn, sets []string) (*reference, error) {
	ref := &reference{map[string]*shape{}, map[string]*shape{}, map[string][]index{}, map[string]string{}}
	schema := "outbox_reference_" + strings.ToLower(rand.Text()[:12])
	sets, err := migration.Order(append([]string{"core"}, sets...))
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+schema+"; SET LOCAL search_path = "+schema); err != nil {
			return err
		}
		for _, set := range sets {
			if err := ref.run(ctx, tx, schema, set); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, functionsSQL, schema)
		if err != nil {
			return err
		}
		var name, definition string
		if _, err := pgx.ForEachRow(rows, []any{&name, &definition}, func() error {
			ref.functions[name] = strings.ReplaceAll(definition, schema+".", "")
			return nil
		}); err != nil {
			return err
		}
		return errRolledBack
	})
	if !errors.Is(err, errRolledBack) {
		return nil,
			fmt.Errorf("make the tables in a schema of their own, which is rolled back, to compare those that exist "+
				"with them: %w", err)
	}
	return ref, nil
}

// run applies a set in the schema, file by file.
func (ref *reference) run(ctx context.Context, tx pgx.Tx, schema, set string) error {
	brought, err := origins([]string{set})
	if err != nil {
		return err
	}
	for _, file := range embedded.List(set) {
		text, err := upFile(set, file.Name)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s/%s: %w", set, file.Name, err)
		}
		var names []string
		for _, o := range brought {
			if o.version <= file.Version {
				names = append(names, o.table)
			}
		}
		shapes, err := readShapes(ctx, tx, schema, names)
		if err != nil {
			return err
		}
		for name, s := range shapes {
			for i := range s.Indexes {
				s.Indexes[i].Definition = strings.ReplaceAll(s.Indexes[i].Definition, schema+".", "")
				if known := (&shape{Indexes: ref.indexes[name]}); known.index(s.Indexes[i].Name) == nil {
					ref.indexes[name] = append(ref.indexes[name], s.Indexes[i])
				}
			}
			for trigger := range s.Triggers {
				s.Triggers[trigger] = strings.ReplaceAll(s.Triggers[trigger], schema+".", "")
			}
			if ref.made[name] == nil {
				ref.made[name] = s
			}
			ref.whole[name] = s
		}
	}
	return nil
}

// asker is a connection or a transaction.
type asker interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// readShapes returns those of the relations that exist.
func readShapes(ctx context.Context, db asker, schema string, names []string) (map[string]*shape, error) {
	rows, err := db.Query(ctx, shapesSQL, schema, names)
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	shapes := map[string]*shape{}
	var name string
	var text []byte
	if _, err := pgx.ForEachRow(rows, []any{&name, &text}, func() error {
		s := new(shape)
		shapes[name] = s
		return json.Unmarshal(text, s)
	}); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	return shapes, nil
}
