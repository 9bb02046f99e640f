package deadletter

// Preview says what a replay of a selection would do, and changes nothing.
type Preview struct {
	Letters int            `json:"letters"`
	Tables  []PreviewTable `json:"tables"`
	// OutsideWindow is how many of them are older than the sink's duplicate window.
	OutsideWindow int `json:"outsideWindow"`
}

// PreviewTable is one table's part of a preview.
type PreviewTable struct {
	Table   string `json:"table"` // "" for jobs
	Letters int    `json:"letters"`
	Stuck   int    `json:"stuck"` // letters that cannot be put back now
	// Overtaken keys had a later event delivered. Racing keys have a later one that waits to be
	// delivered: it can go first if a relay has read it already. LeftBehind keys have an earlier
	// letter that is not among those chosen. What has left its table, by retention or because of
	// the settle mode, is not seen.
	Overtaken  Keys `json:"overtaken"`
	Racing     Keys `json:"racing"`
	LeftBehind Keys `json:"leftBehind"`
}

// Keys counts keys and names the first ten.
type Keys struct {
	Count int      `json:"count"`
	First []string `json:"first,omitempty"`
}
