package browser_test

import (
	"encoding/json"
	"image"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// screen is where something is, what says that it is there, and what opens it there.
type screen struct {
	name, path, says string
	open             func(p *tab)
	dialog           bool
}

// pictured are the screens that docs/operations/screens.md shows.
var pictured = []string{"overview", "letters", "letter", "replay", "events", "event", "conditions", "pauses", "run",
	"audit", "settings"}

// Every screen, as wide and as narrow as people have it and in both colours: axe finds nothing,
// nothing is wider than the window, and the browser has no error, no failed request and no
// violation of the policy to tell of.
func TestScreens(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w, _ := newWorldAlone(t)
	w.allow("order.*")
	w.allow("run:*")
	w.serve("--auth", "none", "--admin", "write")
	w.start("relay")
	dead, run := w.trouble()
	screens := []screen{
		{name: "overview", path: "/", says: "invoice.sent"},
		{name: "letters", path: "/letters", says: "refund.made"},
		{name: "letters of a filter", path: "/letters?type=none", says: "No letter matches"},
		{name: "letter", path: "/letters?letter=" + dead, says: "Fingerprint", dialog: true},
		{name: "letter, edited", path: "/letters?letter=" + dead, says: "Undo the edit", dialog: true,
			open: func(p *tab) { p.press("Edit") }},
		{name: "replay", path: "/letters", says: "This set is frozen", dialog: true,
			open: func(p *tab) { p.see("refund.made"); p.press("Replay …") }},
		{name: "events", path: "/events", says: "behind"},
		{name: "skip", path: "/events?key=INV-7", says: "become dead letters", dialog: true,
			open: func(p *tab) { p.see("behind"); p.press("Skip …") }},
		{name: "event", path: "/events/" + dead, says: "Given up"},
		{name: "no such event", path: "/events/01890a5d-0000-7000-8000-000000000000", says: "no such event"},
		{name: "conditions", path: "/conditions", says: "conditions examined"},
		{name: "pauses", path: "/pauses", says: "the carrier moves house"},
		{name: "pause", path: "/pauses", says: "Relays stop delivering", dialog: true,
			open: func(p *tab) { p.see("parcel.*"); p.press("Pause …") }},
		{name: "runs", path: "/runs", says: run},
		{name: "run", path: "/runs/" + run, says: "RUN_STARTED"},
		{name: "audit", path: "/audit", says: "the carrier moves house"},
		{name: "settings", path: "/settings", says: "max_attempts"},
		{name: "no such page", path: "/nothing", says: "There is no such page"},
		{name: "palette", path: "/", says: "Conditions", dialog: true,
			open: func(p *tab) { p.see("invoice.sent"); p.keys("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)) }},
		{name: "help", path: "/settings", says: "First filter of the screen", dialog: true,
			open: func(p *tab) { p.see("max_attempts"); p.keys("?") }},
	}
	var mu sync.Mutex
	pictures := map[string][]image.Image{}
	t.Cleanup(func() {
		for name, of := range pictures {
			if err := keep(beside(of), name); err != nil {
				t.Error(err)
			}
		}
	})
	looks := []look{desktop, phone, desktop.inDark(), phone.inDark()}
	for i, l := range looks {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			here := *w
			here.t = t
			p := here.open(l, "/")
			for _, s := range screens {
				p.visit(s.path)
				if s.open != nil {
					s.open(p)
				}
				p.see(s.says)
				where := s.name + ", " + l.String()
				// What is not about colours is the same in both.
				if l.dark == (l.width == phone.width) {
					p.accessible(where)
				} else {
					p.accessible(where, "color-contrast")
				}
				if s.name == "no such event" {
					p.expect("/v1/admin/events/")
				}
				p.fine(where)
				if shots != "" && slices.Contains(pictured, s.name) {
					mu.Lock()
					if pictures[s.name] == nil {
						pictures[s.name] = make([]image.Image, len(looks))
					}
					pictures[s.name][i] = p.picture()
					mu.Unlock()
				}
				if s.dialog {
					p.escape()
				}
			}
		})
	}
}

// Who has to show a token is asked for it, sees the page with it, and leaves it with the tab.
func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var made struct{ Token string }
	out := w.ok("", "token", "create", "--tenant", "*", "--scope", "admin:read", "-o", "json")
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	w.serve("--parts", "gateway", "--admin", "write")
	for _, l := range []look{desktop, phone.inDark()} {
		p := w.open(l, "/")
		p.see("Give a token with the scope admin:read")
		p.accessible("sign-in, " + l.String())
		p.fill("Token", strings.ToUpper(made.Token))
		p.press("Open")
		p.see("The server does not know this token")
		p.accessible("sign-in refused, " + l.String())
		p.expect("/v1/admin/session")
		p.fill("Token", made.Token)
		p.press("Open")
		p.see("All tables")
		p.fine("signed in, " + l.String())
		p.run(chromedp.Reload())
		p.see("All tables")
		if l == desktop {
			p.press("Sign out")
			p.see("Give a token")
		}
	}
}

// trouble has something on every screen: what is delivered, dead, blocked and paused, and a run. It
// returns the id of an event that is dead, and that of the run.
func (w *world) trouble() (dead, run string) {
	w.t.Helper()
	w.ok("", "pause", "--topic", "parcel.*", "--reason", "the carrier moves house")
	w.obeyed()
	var made struct{ RunID string }
	if err := json.Unmarshal([]byte(w.ok("", "runs", "create", "--app", "shop", "--crawler", "demo", "-o", "json")),
		&made); err != nil {
		w.t.Fatal(err)
	}
	some := map[string]any{"total": 19.9, "position": json.Number("9007199254740993")}
	w.write(event{"order.placed", "1", "", some}, event{"order.placed", "2", "", some},
		event{"refund.made", "1", "", some}, event{"refund.made", "2", "", some}, event{"refund.asked", "3", "", some},
		event{"invoice.sent", "INV-7", "", some}, event{"invoice.sent", "INV-7", "", some},
		event{"parcel.sent", "4", "", some})
	w.becomes(2, "outbox_events WHERE status = 'SENT'")
	w.becomes(3, "job_dlq")
	w.becomes(1, "outbox_events WHERE event_topic = 'invoice.sent' AND next_retry_at > now() + interval '10 min'")
	w.becomes(1, "crawl_runs WHERE status = 'COMPLETED'")
	return query[string](w, "SELECT id::text FROM outbox_events WHERE event_topic = 'refund.made' LIMIT 1"), made.RunID
}
