package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// order 1: 100 cents
	// order 2: 200 cents
	// order 3: 300 cents
}
