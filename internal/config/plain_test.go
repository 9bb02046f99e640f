package config

import "testing"

func TestExposed(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, ":1": true, "0.0.0.0:1": true, "10.0.0.7:1": true,
		"h:1": true,
	} {
		if got := Exposed(address); got != want {
			t.Errorf("%s: got %t, want %t", address, got, want)
		}
	}
}
