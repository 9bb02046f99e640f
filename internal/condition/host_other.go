//go:build !linux && !darwin

package condition

func openFiles() (uint64, error) { return 0, errNothing }

func freeBytes(string) (uint64, error) { return 0, errNothing }
