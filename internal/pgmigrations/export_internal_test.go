package pgmigrations

import "testing"

// AtlasSum is the text of atlas.sum for what is in the folder.
func AtlasSum(t *testing.T, dir string) string {
	t.Helper()
	s := styles[Atlas]
	s.sum = false // it need not fit
	f, err := readFolder(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := f.atlasSum(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(sum)
}
