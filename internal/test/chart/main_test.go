// Package chart_test is what deploy has for clusters and containers: the Helm chart, the plain
// manifests that are made of it, and the compose file. Objects are read strictly, by the types of
// the API that will read them.
//
// A module of its own, so that what knows of Kubernetes is in nobody's go.sum.
package chart_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/kubernetes/outbox.yaml anew")

// binary is the command, which has to take the settings that the chart writes.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "outbox-chart-")
	if err == nil {
		binary = filepath.Join(dir, "outbox")
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/outbox")
		build.Dir, build.Stderr = "../../..", os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the command:", err)
		os.Exit(1)
	}
	m.Run()
	_ = os.RemoveAll(dir) // a temporary directory
}
