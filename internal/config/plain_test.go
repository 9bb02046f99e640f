package config

import (
	"fmt"
	"testing"
)

func TestPlainRedis(t *testing.T) {
	for url, want := range map[string]string{
		"redis://cache:6379/0": "[cache]", "redis://u:p@10.0.0.7": "[10.0.0.7]",
		"redis://[2001:db8::1]:6379":    "[2001:db8::1]",
		"redis://a:1,localhost:2,b:3/0": "[a b]",
		"redis://127.0.0.1:6379":        "[]", "redis://localhost": "[]", "redis://[::1]:6379/0?db=1": "[]",
		"rediss://cache:6379": "[]", "unix:///run/redis.sock": "[]", "": "[]",
	} {
		if got := fmt.Sprint(PlainRedis(url)); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}

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
