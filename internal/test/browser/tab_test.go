package browser_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

//go:embed testdata/visitor.js
var visitor string

// axe is axe-core, which looks for what shuts people out: https://github.com/dequelabs/axe-core.
//
//go:embed testdata/axe.min.js
var axe string

// look is how a page is looked at.
type look struct {
	width, height int64
	dark          bool
}

var desktop, phone = look{1440, 1000, false}, look{390, 844, false}

func (l look) inDark() look { l.dark = true; return l }

func (l look) String() string {
	name := map[bool]string{true: "dark", false: "light"}[l.dark]
	if l.width == phone.width {
		return "phone " + name
	}
	return "desktop " + name
}

// tab is a window of a browser profile of its own, and what went wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu    sync.Mutex
	wrong []string
}

// open opens the page of a world.
func (w *world) open(l look, path string) *tab {
	w.t.Helper()
	p := w.newTab(l)
	p.load(path)
	return p
}

// newTab opens a window without a page.
func (w *world) newTab(l look) *tab {
	w.t.Helper()
	p := &tab{t: w.t, url: w.server}
	ctx, cancel := chromedp.NewContext(openBrowser(w.t), chromedp.WithNewBrowserContext(), chromedp.WithListener(p.hear))
	w.t.Cleanup(cancel)
	p.ctx = ctx
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	// Else one tab of several is in the background, and is not drawn.
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: visitor})
	p.as(l)
	return p
}

// load loads a screen of the page.
func (p *tab) load(path string) {
	p.t.Helper()
	p.run(chromedp.Navigate(p.url + "/ui/#" + path))
}

// as changes how the page is looked at.
func (p *tab) as(l look) {
	p.t.Helper()
	p.run(chromedp.EmulateViewport(l.width, l.height))
	scheme := map[bool]string{true: "dark", false: "light"}[l.dark]
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// call gives the browser a command of its protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) (result R) {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// hear collects what must not happen: errors on the console, exceptions, requests that failed, and
// violations of the policy, which the browser logs as errors.
func (p *tab) hear(event any) {
	said := ""
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		said = "a dialog of the browser's own: " + e.Message
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			said += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			said = "console"
			for _, arg := range e.Args {
				said += " " + string(arg.Value) + arg.Description
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			said = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			said = fmt.Sprintf("%s: status %d", e.Response.URL, e.Response.Status)
		}
	case *network.EventLoadingFailed:
		if !e.Canceled {
			said = fmt.Sprintf("request failed: %s %s", e.ErrorText, e.BlockedReason)
		}
	}
	if said != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wrong = append(p.wrong, said)
	}
}

// fine fails the test if anything went wrong in the page so far.
func (p *tab) fine(where string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) > 0 {
		p.t.Errorf("%s: the browser says:\n%s", where, strings.Join(slices.Compact(p.wrong), "\n"))
	}
	p.wrong = nil
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// ask returns the value of an expression, or of the promise that it is.
func ask[T any](p *tab, expression string) (v T, err error) {
	return chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// until repeats an expression until it is what counts as done. Between two pages there is nobody to
// ask.
func (p *tab) until(what, expression string, done func(string) bool) {
	p.t.Helper()
	last := ""
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		said, err := ask[string](p, expression)
		if err == nil && done(said) {
			return
		}
		if last = said; err != nil {
			last = err.Error()
		}
		if time.Since(began) > tier.Patience() || p.ctx.Err() != nil {
			text, _ := ask[string](p, "document.body.innerText") // of a page that may be gone
			p.t.Fatalf("never: %s; last %q on\n%s", what, last, text)
		}
	}
}

// see waits until each of the texts is on the page, or in the dialog that is open.
func (p *tab) see(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until("seen "+text, "visitor.text()", func(all string) bool { return strings.Contains(all, text) })
	}
}

// gone waits until a text is not there any more.
func (p *tab) gone(text string) {
	p.t.Helper()
	p.until("gone "+text, "visitor.text()", func(all string) bool { return !strings.Contains(all, text) })
}

// press presses what has a name, in the row that has a text, as soon as it can be pressed.
func (p *tab) press(name string, row ...string) {
	p.t.Helper()
	p.until("pressed "+name, fmt.Sprintf("visitor.press(%q, %q)", name, strings.Join(row, " ")),
		func(hindered string) bool { return hindered == "" })
}

// fill writes into a field, or chooses of its choices.
func (p *tab) fill(label, text string) {
	p.t.Helper()
	chosen := false
	p.until("filled "+label, fmt.Sprintf("visitor.field(%q, %q)", label, text), func(said string) bool {
		chosen = said == "chosen"
		return said == "" || chosen
	})
	if !chosen {
		call(p, input.InsertText, input.InsertTextParams{Text: text})
	}
}

// keys types.
func (p *tab) keys(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.run(chromedp.KeyEvent(keys, options...))
}

// escape closes a dialog, and waits until the page has another address where the dialog's was its
// own.
func (p *tab) escape() {
	p.t.Helper()
	p.keys("\x1b")
	p.until("closed", "document.querySelectorAll('dialog[open]').length + location.hash",
		func(open string) bool { return strings.HasPrefix(open, "0") && !strings.Contains(open, "letter=") })
}

// visit follows a link within the page.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.hash = %q", path)))
}

// accessible fails the test for whatever axe finds by some rules (none: all), and where the page is
// wider than its window.
func (p *tab) accessible(where string, rules ...string) {
	p.t.Helper()
	wanted := map[string]any{"resultTypes": []string{"violations"}}
	if len(rules) > 0 {
		wanted["runOnly"] = rules
	}
	options, err := json.Marshal(wanted)
	if err != nil {
		p.t.Fatal(err)
	}
	if there, err := ask[bool](p, "'axe' in window"); err != nil || !there {
		p.run(chromedp.Evaluate[chromedp.Void](axe))
	}
	found, err := ask[[]string](p, "axe.run(document, "+string(options)+`).then(r => r.violations.flatMap(v =>
		v.nodes.map(n => v.id + ': ' + v.help + ': ' + n.html.slice(0, 300) + ' ' + n.failureSummary)))`)
	if err != nil {
		p.t.Fatalf("%s: axe: %v", where, err)
	}
	for _, violation := range found {
		p.t.Errorf("%s: %s", where, violation)
	}
	wider, err := ask[int](p, "document.documentElement.scrollWidth - innerWidth")
	if err != nil || wider > 0 {
		p.t.Errorf("%s: the page is %d px wider than the window, error %v", where, wider, err)
	}
}

// expect takes what the browser says of an address for what the test has asked for.
func (p *tab) expect(address string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.wrong)
	p.wrong = slices.DeleteFunc(p.wrong, func(said string) bool { return strings.Contains(said, address) })
	if len(p.wrong) == before {
		p.t.Errorf("the browser said nothing of %s", address)
	}
}
