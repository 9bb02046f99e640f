package app

import (
	"context"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

// Ability is what the migrations of some databases can do and those of others cannot.
type Ability string

// The abilities. Each is an interface that the Migrations of a database may have.
const (
	Roles   Ability = "roles"   // RoleMigrations
	Indexes Ability = "indexes" // IndexMigrations
	Export  Ability = "export"  // ExportMigrations
	Zones   Ability = "zones"   // ZoneMigrations
)

// RoleMigrations make the roles with the least privileges.
type RoleMigrations interface {
	ApplyRoles(ctx context.Context) error
}

// IndexMigrations switch between forms of indexes.
type IndexMigrations interface {
	Indexes(ctx context.Context) ([]pgmigrations.Index, error)
	SwitchIndexes(ctx context.Context, to pgmigrations.IndexSet, progress func(index string)) (changed []string, err error)
}

// ExportMigrations write the migrations as a folder of another tool. They need no database.
type ExportMigrations interface {
	Export(dir string, format pgmigrations.Format, sets ...string) ([]pgmigrations.ExportedFile, error)
}

// ZoneMigrations adopt times without a zone.
type ZoneMigrations interface {
	// InZone returns the same migrations, of a database whose application writes times without a
	// zone in this one.
	InZone(zone string) Migrations
}
