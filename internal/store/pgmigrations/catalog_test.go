package pgmigrations_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func catalog(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	return testenv.Catalog(t, conn)
}

func TestUpDownUpLeavesTheSameCatalog(t *testing.T) {
	t.Parallel()
	for _, set := range pgmigrations.Sets {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			url := testenv.Database(t)
			up(t, url, "core", set)
			conn := connect(t, url)
			want := catalog(t, conn)
			if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, set); err != nil {
				t.Fatal(err)
			}
			if reflect.DeepEqual(catalog(t, conn), want) {
				t.Fatal("Down changed nothing")
			}
			up(t, url, set)
			if got := catalog(t, conn); !reflect.DeepEqual(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
