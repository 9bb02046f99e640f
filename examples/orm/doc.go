// Package orm holds one test for each way to the database that people have: GORM, ent, sqlx, bun,
// sqlc. Each places orders with the events about them in one transaction, rolls one back, and sees
// a relay deliver the others. It is a module of its own, so what it needs costs nobody anything.
//
// make orms runs it; ent's code is generated first, by go generate.
package orm
