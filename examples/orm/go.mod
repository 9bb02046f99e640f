module github.com/outboxrelay/outbox/examples/orm

go 1.26.0

require github.com/outboxrelay/outbox v0.0.0

replace github.com/outboxrelay/outbox => ../..
