package outboxtest

func runTests() []storeTest { return nil }
