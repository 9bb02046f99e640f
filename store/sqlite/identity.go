package sqlite

import (
	"fmt"
	"hash/fnv"
	"reflect"
)

// origin is the hash that tells a table's events from those of all other tables and files. It is
// made of the file's path and, where the system has one, its number, which a copy does not share. A
// file that is moved is another one: what was published last could be published again by whoever
// finds it unsettled.
func (d *DB) origin(table string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x1f%d\x1f%s", d.full, fileNumber(d.place.parts[mainPart].info.Sys()), table) // never fails
	return h.Sum64()
}

// fileNumber is the inode in what os.Stat returns on Unix, 0 elsewhere. The type of it differs from
// system to system.
func fileNumber(stat any) uint64 {
	v := reflect.Indirect(reflect.ValueOf(stat))
	if v.Kind() != reflect.Struct {
		return 0
	}
	if n := v.FieldByName("Ino"); n.IsValid() && n.CanUint() {
		return n.Uint()
	}
	return 0
}
