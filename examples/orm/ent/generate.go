// Package ent is what ent generates from schema: make orms does. Only its source is kept.
package ent

//go:generate go tool ent generate --feature sql/execquery ./schema
