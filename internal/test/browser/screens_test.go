package browser_test

import "testing"

func TestScreens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve("--auth", "none", "--admin", "write")
	p := w.open(desktop, "/")
	p.see("All is well")
	p.accessible("overview")
	p.fine("overview")
}
