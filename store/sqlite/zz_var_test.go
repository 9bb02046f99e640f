package sqlite

import (
	"testing"
	"time"
	"fmt"
)

func TestZZ(t *testing.T) {
	b := &testing.B{}
	_ = b
	db, err := Create(t.Context(), t.TempDir()+"/x.db", 1)
	if err != nil { t.Fatal(err) }
	db.write.Exec("CREATE TABLE e (position INTEGER PRIMARY KEY, status TEXT, k TEXT, next TEXT, payload TEXT) STRICT")
	db.write.Exec("CREATE INDEX u ON e (position) WHERE status IN ('NEW','FAILED')")
	db.write.Exec("CREATE INDEX w ON e (next) WHERE next IS NOT NULL")
	for _, q := range []string{
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') ORDER BY position LIMIT 5",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') ORDER BY position LIMIT ?1",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND next <= ?1",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND next <= CAST(?1 AS TEXT)",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND next <= coalesce(?1, NULL)",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND next <= (SELECT ?1)",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND (next IS NULL OR next <= CAST(?1 AS TEXT))",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND (next IS NULL OR next <= (SELECT ?1))",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND (?1 >> length(k)) & 1",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND (CAST(?1 AS INTEGER) >> length(k)) & 1",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND k NOT IN (SELECT k FROM e WHERE next > CAST(?1 AS TEXT) AND k IS NOT NULL)",
		"SELECT * FROM e WHERE status IN ('NEW','FAILED') AND (k IS NULL OR k NOT IN (SELECT k FROM e WHERE next > CAST(?1 AS TEXT) AND status IN ('NEW','FAILED') AND k IS NOT NULL))",
	} {
		t0 := time.Now()
		for range 200 { s, err := db.read.Prepare(q); if err != nil { t.Fatal(q, err) }; s.Close() }
		prep := time.Since(t0)/200
		s, _ := db.read.Prepare(q)
		run := func(i int) {
			args := []any{}
			if len(q) > 0 && q[len(q)-1] != '5' { args = append(args, 7+i) }
			r, err := s.Query(args...)
			if err != nil { t.Fatal(err) }
			for r.Next() {}
			r.Close()
		}
		run(0)
		t0 = time.Now()
		for i := range 200 { run(i) }
		fmt.Printf("%8s %8s %s\n", prep, time.Since(t0)/200, q)
	}
}
