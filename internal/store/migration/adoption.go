package migration

// Adoption is what migrating up does to tables that were there before it, or why it does not.
type Adoption struct {
	Tables   []AdoptedTable `json:"tables"`
	Notes    []string       `json:"notes"`    // what somebody who runs an application on them should know
	Problems []string       `json:"problems"` // with one of them, up changes nothing
}

// Empty reports whether there is nothing to adopt and nothing to say.
func (a Adoption) Empty() bool {
	return len(a.Tables) == 0 && len(a.Notes) == 0 && len(a.Problems) == 0
}

// AdoptedTable is one that exists already.
type AdoptedTable struct {
	Name  string   `json:"name"`
	Was   string   `json:"was,omitempty"` // its name until then, where up changes it
	Rows  *int64   `json:"rows"`          // nil: not counted, because the table has a problem
	Size  string   `json:"size"`
	Steps []string `json:"steps"` // in plain words, in order
}
