package crawl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

//go:embed scripts/*.json
var embedded embed.FS

// Scripts returns the crawlers of the embedded scripts, for instance "script:checkout". speed is as
// in Script.
func Scripts(speed float64) (crawlers []Crawler, err error) {
	err = fs.WalkDir(embedded, "scripts", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := embedded.Open(path)
		if err != nil {
			return err
		}
		c, err := Script(path, f, speed)
		crawlers = append(crawlers, c)
		return errors.Join(err, f.Close())
	})
	return crawlers, err
}

// script is a script as it is written. A step either waits and then has events, or is a list of
// steps that is played repeat times.
//
// In the strings of a payload {step} is the number of the step, from 0001. {n} is that of the
// repetition, from 1. {sha256} is a digest of the script's name and the step's number, as there is
// no screenshot that had a real one.
type script struct {
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Steps       []scriptStep `json:"steps"`
}

type scriptStep struct {
	Node   string        `json:"node"` // the node's name; "": Step
	Wait   duration      `json:"wait"`
	Events []scriptEvent `json:"events"`

	Repeat int          `json:"repeat"`
	Steps  []scriptStep `json:"steps"`
}

type scriptEvent struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// duration is written as in Go: "250ms".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err == nil && v < 0 {
		err = fmt.Errorf("%s is negative", v)
	}
	*d = duration(v)
	return err
}

// maxScriptSteps keeps a few nested repetitions from filling the memory. It is the most steps that
// a run may ask for, too.
const maxScriptSteps = 100_000

// Script returns the crawler script:NAME of a script in JSON; NAME is the script's own, file only
// for errors. Each step is one visit of a node, so a run needs as many steps (NewRun.MaxSteps) as
// the script has. speed divides the waiting times: 0 and 1 are the script's own pace, a negative
// one does not wait.
//
// Errors name the step, as in "steps[3].steps[0]". Unknown fields are refused.
func Script(file string, r io.Reader, speed float64) (Crawler, error) {
	var s script
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Crawler{}, fmt.Errorf("read script %s: %w", file, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Crawler{}, fmt.Errorf("read script %s: there is something behind its end", file)
	}
	p := player{name: s.Name, speed: speed}
	if err := checkText("name", s.Name, MaxCrawler-len("script:"), true); err != nil {
		return Crawler{}, fmt.Errorf("read script %s: %w", file, err)
	}
	if err := p.unroll("steps", s.Steps, 1); err != nil {
		return Crawler{}, fmt.Errorf("read script %s: %w", file, err)
	}
	c := Crawler{Name: "script:" + s.Name, First: p.steps[0].node, Nodes: map[string]Node{}}
	for _, step := range p.steps {
		c.Nodes[step.node] = NodeFunc(p.visit)
	}
	return c, nil
}

// player plays a script.
type player struct {
	name  string
	speed float64
	steps []playedStep
}

// playedStep is a step with the repetitions unrolled and the names filled in.
type playedStep struct {
	node   string
	wait   time.Duration
	events []NewEvent
}

// unroll appends steps, the nth time they are played.
func (p *player) unroll(path string, steps []scriptStep, n int) error {
	if len(steps) == 0 {
		return fmt.Errorf("%s is empty", path)
	}
	for i, s := range steps {
		path := fmt.Sprintf("%s[%d]", path, i)
		if s.Repeat < 0 || s.Repeat > maxScriptSteps {
			return fmt.Errorf("%s: repeat is %d, must be between 1 and %d", path, s.Repeat, maxScriptSteps)
		}
		if (s.Repeat > 0 || s.Steps != nil) && (s.Wait != 0 || s.Events != nil || s.Node != "") {
			return fmt.Errorf("%s: repeat and steps make it a list: node, wait and events belong into its steps", path)
		}
		if s.Repeat == 0 && s.Steps == nil {
			if err := p.add(s, n); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		for n := range max(s.Repeat, 1) {
			if err := p.unroll(path+".steps", s.Steps, n+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *player) add(s scriptStep, n int) error {
	if len(p.steps) == maxScriptSteps {
		return fmt.Errorf("the script has more than %d steps", maxScriptSteps)
	}
	if s.Node == "" {
		s.Node = "Step"
	}
	number := fmt.Sprintf("%04d", len(p.steps)+1)
	sum := sha256.Sum256([]byte(p.name + "/" + number))
	fill := strings.NewReplacer("{step}", number, "{n}", strconv.Itoa(n), "{sha256}", hex.EncodeToString(sum[:]))
	step := playedStep{node: s.Node, wait: time.Duration(s.Wait)}
	for _, e := range s.Events {
		var payload bytes.Buffer
		if err := json.Compact(&payload, e.Payload); err != nil && e.Payload != nil {
			return err
		}
		event := NewEvent{Type: e.Type}
		if e.Payload != nil {
			event.Payload = json.RawMessage(fill.Replace(payload.String()))
		}
		step.events = append(step.events, event)
	}
	p.steps = append(p.steps, step)
	checked := append([]NewEvent(nil), step.events...)
	return complete(checked, outbox.DefaultMaxPayload)
}

// visit plays the step whose number is the state.
func (p *player) visit(ctx context.Context, _ Run, state json.RawMessage) (Result, error) {
	n := 0
	if state != nil {
		if err := json.Unmarshal(state, &n); err != nil || n < 0 || n >= len(p.steps) {
			return Result{}, fmt.Errorf("play script %s: the state is %.50s, want the number of one of %d steps", p.name, state,
				len(p.steps))
		}
	}
	step := p.steps[n]
	wait := step.wait
	if p.speed > 0 {
		wait = time.Duration(float64(wait) / p.speed)
	}
	if p.speed >= 0 && !backoff.Wait(ctx, wait) {
		return Result{}, ctx.Err()
	}
	r := Result{Events: step.events}
	if n++; n < len(p.steps) {
		r.Next, r.State = p.steps[n].node, json.RawMessage(strconv.Itoa(n))
	}
	return r, nil
}
