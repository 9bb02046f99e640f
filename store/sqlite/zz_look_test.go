package sqlite

import (
	"testing"

	"github.com/outboxrelay/outbox"
)

func BenchmarkLook(b *testing.B) {
	s, _, _ := benchStore(b)
	conn, _ := s.db.read.Conn(b.Context())
	defer conn.Close()
	stmt, _ := conn.PrepareContext(b.Context(), "PRAGMA data_version")
	var v int64
	for b.Loop() {
		if err := stmt.QueryRowContext(b.Context()).Scan(&v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	s, _, _ := benchStore(b)
	conn, _ := s.db.read.Conn(b.Context())
	defer conn.Close()
	for b.Loop() {
		stmt, err := conn.PrepareContext(b.Context(), s.sql.claim.text)
		if err != nil {
			b.Fatal(err)
		}
		stmt.Close()
	}
}
func BenchmarkPrepareSettle(b *testing.B) {
	s, _, _ := benchStore(b)
	conn, _ := s.db.read.Conn(b.Context())
	defer conn.Close()
	for b.Loop() {
		stmt, err := conn.PrepareContext(b.Context(), s.sql.settleDelivered.text)
		if err != nil {
			b.Fatal(err)
		}
		stmt.Close()
	}
}
func BenchmarkIdleClaim(b *testing.B) {
	s, _, lanes := benchStore(b)
	s.db.write.Exec("DELETE FROM outbox_events")
	for b.Loop() {
		if _, err := s.Claim(b.Context(), lanes, outbox.ClaimLimit{Records: 4000, Bytes: 8 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}
