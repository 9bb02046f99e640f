// Package install has the tests of what is installed: the version that a program says, what it
// tells systemd and gets from it, and the lines that the documentation has people install with.
// Package packages below it tests what `make release` has built, and the unit.
package install
