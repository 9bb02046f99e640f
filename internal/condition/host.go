package condition

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func fileReadable(_ context.Context, x *Examination) (found []Finding, err error) {
	for _, path := range []string{x.Config.SecretFile(), x.File} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			continue // whoever needs the file says so
		}
		// A group may be the service's own, as in packages and pods.
		if mode := info.Mode().Perm(); mode&0o027 != 0 {
			found = append(found, Finding{About: path, Remedy: "chmod 600 " + path,
				Says: fmt.Sprintf("others than its owner may read or write %s (%s)", path, mode)})
		}
	}
	return found, nil
}

func filesFew(_ context.Context, x *Examination) ([]Finding, error) {
	most, err := openFiles()
	if err != nil || most >= x.Limits.Files {
		return nil, err
	}
	return at("this process", "this process may have %d files open, fewer than %d", most, x.Limits.Files), nil
}

func diskLow(_ context.Context, x *Examination) ([]Finding, error) {
	if x.File == "" {
		return nil, errNothing
	}
	free, err := freeBytes(filepath.Dir(x.File))
	if err != nil || free >= x.Limits.Free {
		return nil, err
	}
	return at(x.File, "the file system of %s has %d MB left", x.File, free>>20), nil
}
