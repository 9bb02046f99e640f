package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// visitor does what a newcomer does on the page, as he sees it, and says what came of it. It stands
// before the page's own script, so that it hears that one's errors too.
const visitor = `<script>
(() => {
const said = { steps: [], errors: [], commands: [] }, id = x => document.getElementById(x)
addEventListener("error", e => said.errors.push(e.message))
addEventListener("unhandledrejection", e => said.errors.push(String(e.reason)))
addEventListener("securitypolicyviolation", e => said.errors.push(e.violatedDirective + " " + e.blockedURI))
console.error = (...args) => said.errors.push(args.join(" "))
const tell = () => fetch("/said", { method: "POST", body: JSON.stringify(said) })
async function see(what, ok) {
  for (const end = Date.now() + 100000; !ok();) {
    if (Date.now() > end) throw new Error("never seen: " + what + "; but " + id("view-events").innerText)
    await new Promise(r => setTimeout(r, 20))
  }
  said.steps.push(what)
}
const first = n => document.querySelectorAll("#events > li")[n]?.innerText ?? ""
function write(key, poison) {
  const form = id("write")
  form.key.value = key
  form.poison.checked = poison
  form.oninput()
  form.querySelector("button.main").click()
}
const button = name => [...document.querySelectorAll("#events button")].find(b => b.textContent === name)
const command = at => said.commands.push(id(at).querySelector("code").textContent)
addEventListener("load", async () => {
  try {
    await see("no events", () => !id("none").hidden && id("sink").textContent === "Works")
    await see("a subscriber", () => id("listening").textContent === "connected")
    write("1", false)
    await see("delivered", () => /delivered[^]*key 1[^]*to order.placed in/.test(first(0)))
    await see("arrived", () => id("arrived").innerText.includes('order.placed 1 {"total":12}'))
    id("switch").click()
    await see("broken", () => id("sink").textContent.startsWith("Broken"))
    write("2", false)
    await see("waiting", () => /waiting[^]*key 2[^]*for the sink/.test(first(0)) && id("waiting").textContent === "1")
    await see("breaker open", () => id("sink").textContent === "Broken, breaker open")
    id("switch").click()
    await see("drained", () => /delivered[^]*key 2/.test(first(0)) && id("waiting").textContent === "0")
    write("3", true)
    await see("retrying", () => /retrying[^]*key 3[^]*next try at[^]*poison/.test(first(0)))
    write("3", false)
    await see("waiting behind", () => /waiting[^]*key 3[^]*behind/.test(first(0)))
    await see("dead", () => /dead[^]*key 3[^]*poison/.test(first(1)) && id("dead").textContent === "1")
    await see("not behind any more", () => /delivered/.test(first(0)))
    button("Replay").click()
    await see("replayed", () => /delivered/.test(first(1)) && id("dead").textContent === "0")
    button("Details").click()
    await see("details", () => first(0).includes('"total": 12'))
    write("4", true)
    command("c-write")
    await see("dead again", () => /dead[^]*key 4/.test(first(0)))
    for (const at of ["c-events", "c-dlq"]) command(at)
    for (const c of first(0).matchAll(/\S* dlq replay .*/g)) said.commands.push(c[0])
    id("tab-runs").click()
    await see("no run unasked", () => id("answer").textContent === "None yet.")
    id("start").click()
    await see("a run", () => id("run-events").innerText.includes("RUN_STARTED"))
    const lacks = [...document.querySelectorAll("input, textarea")].filter(i => !i.labels.length).length
    said.steps.push(lacks + " fields without a label")
  } catch (e) { said.errors.push(e.message) }
  tell()
})
})()
</script>`

// The page, as a browser shows it and a newcomer uses it. An event that he writes is delivered. One
// for a broken sink waits, and is delivered when the sink is mended. One that the sink refuses is
// retried, dies for a reason and can be put back. The commands that it shows do the same.
func TestDevPage(t *testing.T) {
	t.Parallel()
	e := env{t: t}
	d := e.develop(t.TempDir(), "--temp")
	origin, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(origin) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Path != "/" {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			size = len(body)
			body = bytes.Replace(body, []byte("<style>"), []byte(visitor+"<style>"), 1)
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
			return err
		},
	}
	type report struct{ Steps, Errors, Commands []string }
	said := make(chan report, 1)
	mux := http.NewServeMux()
	mux.Handle("/", proxy)
	mux.HandleFunc("POST /said", func(_ http.ResponseWriter, r *http.Request) {
		var told report
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil {
			told.Errors = []string{err.Error()}
		}
		said <- told
	})
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	browser := testenv.ChromiumBrowser(t)
	t.Cleanup(func() { _ = browser.Stop() }) // before the server, which waits for its streams to end
	if err := browser.Open(t.Context(), front.URL+"/"); err != nil {
		t.Fatal(err)
	}
	select {
	case told := <-said:
		t.Logf("seen: %s", strings.Join(told.Steps, ", "))
		if len(told.Errors) > 0 || told.Steps[len(told.Steps)-1] != "0 fields without a label" {
			t.Fatalf("errors %q after %q", told.Errors, told.Steps)
		}
		if len(told.Commands) != 4 {
			t.Fatalf("the page shows the commands %q", told.Commands)
		}
		d.dir = t.TempDir() // any folder
		for _, line := range told.Commands {
			p := d.shell(line)
			if code := p.wait(); code != 0 {
				t.Errorf("%s: exit code %d", line, code)
			}
			if strings.Contains(line, "replay") {
				contains(t, p.out.String(), "replayed 1 letter")
			}
		}
	case <-time.After(tier.Patience()):
		t.Fatal("the page did not come so far")
	}
	if size == 0 || size > 30<<10 {
		t.Errorf("the page has %d bytes, want 30 KB at most", size)
	}
	if err := browser.Stop(); err != nil {
		t.Error(err)
	}
	d.stop()
}

// What the page asks for is refused to who is no page of this server: to another name of its
// address, to a proxy, and to another site or port that would change something.
func TestDevPageRefuses(t *testing.T) {
	t.Parallel()
	d := env{t: t}.develop(t.TempDir(), "--temp")
	for _, c := range []struct {
		method, path, header, value string
		status                      int
	}{
		{"GET", "/", "Host", "evil.example", http.StatusMisdirectedRequest},
		{"GET", "/dev/stream", "Host", "evil.example", http.StatusMisdirectedRequest},
		{"GET", "/metrics", "Host", "evil.example", http.StatusMisdirectedRequest},
		{"GET", "/metrics", "X-Nothing", "", http.StatusOK},
		{"POST", "/dev/sink", "X-Forwarded-For", "10.0.0.1", http.StatusForbidden},
		{"POST", "/dev/sink", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		{"POST", "/dev/replay", "Sec-Fetch-Site", "same-site", http.StatusForbidden},
		{"POST", "/dev/events", "Origin", "http://localhost:5173", http.StatusForbidden},
		{"GET", "/dev/sink", "X-Nothing", "", http.StatusMethodNotAllowed},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, d.url+c.path, strings.NewReader(`{"broken": true}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(c.header, c.value)
		if c.header == "Host" {
			r.Host = c.value
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%s %s with %s %s: status %d, want %d", c.method, c.path, c.header, c.value, answer.StatusCode, c.status)
		}
	}
	d.stop()
}
