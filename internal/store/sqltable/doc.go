// Package sqltable is an outbox table as the SQL of any database has it: its layout with quoted
// names, and its values as a driver returns them.
//
// Guaranteed: a value of another type than the layout's is read as what it is and no error. Not
// guaranteed: that names are quoted as the database asks; who calls [Quote] says how.
package sqltable
