package cloudevent

import "testing"

func TestHeaderValue(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "Order/42": "Order/42", "Euro € 😀": "Euro%20%E2%82%AC%20%F0%9F%98%80", // the example of the binding
		"a\r\nb": "a%0D%0Ab", `"100%"`: "%22100%25%22", "\x7f": "%7F",
	} {
		if got := HeaderValue(value); got != want {
			t.Errorf("HeaderValue(%q) is %q, want %q", value, got, want)
		}
	}
}
