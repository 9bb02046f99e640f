package pgtable

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

const benchBatch = 1000

// BenchmarkPublish is the sink with 500-byte payloads in batches of 1000: events/s.
func BenchmarkPublish(b *testing.B) {
	sink, admin := open(b, Config{})
	makeTables(b, admin, "inbox")
	benchmark(b, func(batch []outbox.Delivery) error {
		for i, res := range sink.Publish(b.Context(), batch) {
			if res != (outbox.Result{}) {
				return fmt.Errorf("delivery %d: %+v", i, res)
			}
		}
		return nil
	})
}

// BenchmarkPlainPipeline is what the sink is compared with: an INSERT an event in one pipeline and
// transaction.
func BenchmarkPlainPipeline(b *testing.B) {
	_, admin := open(b, Config{})
	makeTables(b, admin, "inbox")
	benchmark(b, func(batch []outbox.Delivery) error {
		statements := new(pgx.Batch)
		for i := range batch {
			d := &batch[i]
			statements.Queue(`INSERT INTO inbox (event_id, origin, generation, topic, aggregate_type, aggregate_id, tenant_id,
				source, occurred_at, payload) VALUES ($1, 0, 0, $2, $3, $4, $5, $6, $7, $8)`,
				d.ID, d.Topic, d.AggregateType, d.AggregateID, d.TenantID, d.Source, d.OccurredAt, d.Payload)
		}
		return admin.SendBatch(b.Context(), statements).Close()
	})
}

func benchmark(b *testing.B, publish func([]outbox.Delivery) error) {
	payload := []byte(`"` + strings.Repeat("x", 498) + `"`)
	batch := make([]outbox.Delivery, benchBatch)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range batch {
			batch[i] = event(b, "inbox", i%200)
			batch[i].Payload = payload
		}
		b.StartTimer()
		if err := publish(batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "events/s")
}
