package outbox

import "slices"

// pauses are what an operator has paused of the relay's table, as its last lease check found it. A pause takes effect
// between two batches, and burns no attempt: what is paused simply waits, with what is behind it in its key.
type pauses struct {
	table   bool
	topics  []string
	changes int
}

// change takes over what a lease check found, and tells whether it is something new.
func (p *pauses) change(l Leased) bool {
	if p.table == l.Paused && slices.Equal(p.topics, l.PausedTopics) {
		return false
	}
	p.table, p.topics = l.Paused, l.PausedTopics
	p.changes++
	return true
}

func (p *pauses) log(cfg *RelayConfig) {
	switch {
	case p.table:
		cfg.Logger.Warn("table paused by an operator", "table", cfg.Name)
	case len(p.topics) > 0:
		cfg.Logger.Warn("topics paused by an operator", "table", cfg.Name, "topics", p.topics)
	default:
		cfg.Logger.Info("resumed by an operator", "table", cfg.Name)
	}
}

// paused returns what is paused now.
func (k *leaseKeeper) paused() pauses {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pauses
}
