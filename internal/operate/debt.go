package operate

// Debt is what a sink has not taken of the events of a table with routes.
type Debt struct {
	Sink     string   `json:"sink"`
	Table    string   `json:"table"`
	Owed     int      `json:"owed"`     // deliveries that it has still to take
	Retrying int      `json:"retrying"` // of those that wait for another attempt
	Oldest   *float64 `json:"oldest"`   // seconds since the first of their events was written; nil: none is owed
	Dead     int      `json:"dead"`     // deliveries that are dead letters
}
