//go:build linux || darwin

package condition

import "syscall"

func openFiles() (most uint64, err error) {
	var limit syscall.Rlimit
	err = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return limit.Cur, err
}

func freeBytes(folder string) (uint64, error) {
	var fs syscall.Statfs_t
	err := syscall.Statfs(folder, &fs)
	return fs.Bavail * uint64(fs.Bsize), err //nolint:gosec // a size is not negative
}
