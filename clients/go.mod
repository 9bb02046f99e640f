module github.com/outboxrelay/outbox/clients

go 1.26.0

replace github.com/outboxrelay/outbox => ..

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/outboxrelay/outbox v0.0.0-00010101000000-000000000000
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
