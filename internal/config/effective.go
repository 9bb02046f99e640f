package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
)

// Setting is a setting as it is in effect.
type Setting struct {
	Name  string `json:"name"`  // its key in a file
	Value any    `json:"value"` // never a password or a token; a duration is a string
	From  string `json:"from"`  // "default", or what set it: FILE:LINE, OUTBOX_POLL_MAX, --poll-max
	// Hides is where the file has it too, in vain: FILE:LINE.
	Hides string `json:"hides,omitempty"`
}

// Effective returns every setting, in the order in which they are documented.
func (c Config) Effective() ([]Setting, error) {
	values := map[string]any{}
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: &values, TagName: "yaml"})
	if err == nil {
		err = d.Decode(c)
	}
	if err != nil {
		return nil, fmt.Errorf("list settings: %w", err)
	}
	values["config"] = c.found.path
	var names []string
	All().VisitAll(func(f *pflag.Flag) { names = append(names, key(f.Name)) })
	var settings []Setting
	for _, name := range append(names, lists...) {
		from, ok := c.found.origins[name]
		if !ok {
			from = "default"
		}
		settings = append(settings, Setting{name, c.shown(name, values[name]), from, c.found.hidden[name]})
	}
	return settings, nil
}

// Given tells whether a flag, a variable or the file has set a flag's setting.
func (c Config) Given(flag string) bool { return c.found.origins[key(flag)] != "" }

// shown is a value that anybody may see.
func (c Config) shown(name string, value any) any {
	if d, ok := value.(time.Duration); ok {
		return brief(d)
	}
	if origins, ok := value.([]string); ok && name == "cors_origin" {
		origins = slices.Clone(origins)
		for i, o := range origins {
			if o != "*" && !isOrigin(o) {
				origins[i] = "(no origin, not shown)"
			}
		}
		return origins
	}
	if name == "sink" {
		masked := map[string]string{}
		for name, url := range c.Sink {
			masked[name] = c.kinds.Sinks.Mask(url)
		}
		return masked
	}
	text, _ := value.(string)
	switch {
	case text == "":
		return value
	case name == "database":
		return c.kinds.Databases.Show(text)
	case name == "token":
		return "(set, not shown)"
	case (name == "server" || name == "public_url") && !isBase(text): // neither may hold a password, but it might
		return "(no valid address, not shown)"
	}
	return value
}

// brief is a duration without the zeros: 168h and not 168h0m0s.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
