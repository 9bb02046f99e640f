package outboxtest

func letterTests() []storeTest { return nil }
