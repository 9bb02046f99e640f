package chart_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// The compose file is one by the specification's own reader, and what it runs is restricted and
// publishes no server.
func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../../../deploy/compose.yaml"}, cli.WithName("outbox"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := project.ServiceNames()
	slices.Sort(names)
	if want := []string{"migrate", "outbox", "postgres", "redis"}; !slices.Equal(names, want) {
		t.Errorf("services are %v, want %v", names, want)
	}
	for name, s := range project.Services {
		if len(s.Ports) > 0 {
			t.Errorf("%s publishes %v", name, s.Ports)
		}
		if name != "migrate" && s.HealthCheck == nil {
			t.Errorf("%s has no health check", name)
		}
		if own := name == "outbox" || name == "migrate"; own && (!s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"})) {
			t.Errorf("%s may write, or has capabilities: %v, %v", name, s.ReadOnly, s.CapDrop)
		}
	}
	for of, condition := range map[string]string{"migrate": types.ServiceConditionCompletedSuccessfully,
		"redis": types.ServiceConditionHealthy} {
		if got := project.Services["outbox"].DependsOn[of].Condition; got != condition {
			t.Errorf("outbox starts once %s is %q, want %q", of, got, condition)
		}
	}
	environment := project.Services["outbox"].Environment
	if got := environment["OUTBOX_LISTEN"]; got == nil || *got == "" {
		t.Error("nothing answers the health check")
	}
	validate := exec.CommandContext(t.Context(), binary, "config", "validate", "--for", "relay")
	for name, value := range environment {
		validate.Env = append(validate.Env, name+"="+*value)
	}
	if out, err := validate.CombinedOutput(); err != nil {
		t.Errorf("the program refuses the settings: %v\n%s", err, out)
	}
}
