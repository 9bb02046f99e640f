// Package browser_test is the operators' page in a real browser, against real servers. What a
// button does is looked for in the database and at the broker, and not only on the page.
//
// A module of its own, so that the driver of the browser is in nobody's go.sum.
package browser_test

import (
	"context"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// binary builds the command once.
var binary = sync.OnceValues(func() (string, error) { return testenv.BuildCommand() })

// browser is the one browser of this package, in which each test has windows of its own. It is
// started by the first test that needs it, so that a package whose tests are skipped starts none.
var browser struct {
	sync.Mutex
	chromium *testenv.Chromium
	ctx      context.Context
	close    context.CancelFunc
}

func TestMain(m *testing.M) {
	testenv.AtOnce(4)
	testenv.Main(m)
	if browser.chromium != nil {
		browser.close()
		_ = browser.chromium.Stop() // it is killed
	}
}

// openBrowser returns the context of the package's browser.
func openBrowser(t *testing.T) context.Context {
	t.Helper()
	browser.Lock()
	defer browser.Unlock()
	if browser.ctx != nil {
		return browser.ctx
	}
	testenv.Installed(t, "chromium")
	chromium, err := testenv.StartChromium(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	allocator, cancel := remote.NewAllocator(context.Background(), chromium.URL())
	ctx, closed := chromedp.NewContext(allocator)
	browser.chromium, browser.ctx, browser.close = chromium, ctx, func() { closed(); cancel() }
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("connect to the browser: %v", err)
	}
	return ctx
}
