package tables

// SetStatus says where a database stands with one set.
type SetStatus struct {
	Set     string   `json:"set"`
	Current uint     `json:"current"` // 0: nothing applied
	Latest  uint     `json:"latest"`  // newest embedded version; below Current when the database is newer than this build
	Dirty   bool     `json:"dirty"`   // a process died while migrating; Up repairs it
	Pending []string `json:"pending"` // the files Up would run, oldest first; the marked one is not listed while Dirty
}

// Sets says which set of migrations makes a table of ours.
var Sets = map[string]string{
	"outbox_events": "core", "outbox_lanes": "core", "outbox_relays": "core", "job_dlq": "core", "apps": "core", "outbox_audit": "core", "event_outbox": "events", "crawl_outbox": "crawl",
	"crawl_runs": "crawl", "crawl_events": "crawl",
	"outbox_maintenance": "core", "outbox_archive": "core", "outbox_tokens": "core", "outbox_tickets": "core",
}
