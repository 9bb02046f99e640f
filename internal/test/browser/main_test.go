// Package browser_test is the operators' page in a real browser, against real servers. What a
// button does is looked for in the database and at the broker, and not only on the page.
//
// A module of its own, so that the driver of the browser is in nobody's go.sum.
package browser_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// patience bounds a wait for a server or the page, on a machine that others use as well.
const patience = testenv.Patience

// binary is the command, and browser the one browser in which each test has windows of its own.
var (
	binary  string
	browser context.Context
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "outbox-browser-")
	if err == nil {
		binary = filepath.Join(dir, "outbox")
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/outbox")
		build.Dir = "../../.."
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the command:", err)
		os.Exit(1)
	}
	chromium, err := testenv.StartChromium(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	allocator, cancel := remote.NewAllocator(context.Background(), chromium.URL())
	var closed context.CancelFunc
	browser, closed = chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "connect to the browser:", err)
		os.Exit(1)
	}
	testenv.AtOnce(4)
	testenv.Main(m)
	closed()
	cancel()
	_ = chromium.Stop()   // it is killed
	_ = os.RemoveAll(dir) // a temporary directory
}
