// Package packages tests what `make release` builds: that it is whole, signed and the same when
// built twice, that its archive delivers an event on a machine without Go, and the life of its
// package in a Debian of its own.
//
// It takes minutes, so it belongs to the tier "all".
package packages
