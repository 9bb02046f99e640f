// Package sources has the tests of package source with every broker: servers and consuming
// processes are killed.
package sources
