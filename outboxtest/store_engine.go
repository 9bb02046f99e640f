package outboxtest

func engineTests() []storeTest { return nil }
