package pgmigrations

import (
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // the zones under test
)

// Over database zones, application zones and idle times, a zone is never decided wrongly: not for
// an application that is running, in any zone, and not for an idle one in a zone of the candidates.
func TestZoneIsNeverDecidedWrongly(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "America/New_York", "America/Los_Angeles", "Europe/London", "Europe/Berlin", "Asia/Kolkata",
		"Asia/Tokyo", "Pacific/Kiritimati"}
	locations := map[string]*time.Location{}
	for _, zone := range zones {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		locations[zone] = location
	}
	offset := func(zone string, at time.Time) time.Duration {
		_, seconds := at.In(locations[zone]).Zone()
		return time.Duration(seconds) * time.Second
	}
	decisions := 0
	for _, month := range []time.Month{time.January, time.July} {
		now := time.Date(2026, month, 15, 12, 0, 0, 0, time.UTC)
		for _, database := range zones {
			for _, application := range zones {
				for idle := time.Duration(0); idle < 40*time.Hour; idle += 4 * time.Minute {
					names := slices.Compact([]string{"UTC", database})
					if !slices.Contains(names, application) && idle > fresh {
						continue
					}
					c := &bareColumn{table: "outbox_events", column: "created_at"}
					var candidates []zoneCandidate
					for _, name := range names {
						ago := idle + offset(name, now) - offset(application, now)
						seconds := ago.Seconds()
						z := zoneCandidate{name: name, whose: "a test's", database: name == database}
						z.saw(ago)
						candidates, c.ages = append(candidates, z), append(c.ages, &seconds)
					}
					a := &adoption{works: []*work{{now: c.table}}}
					a.decideZone([]*bareColumn{c}, candidates, false)
					if a.zone == "" {
						continue
					}
					decisions++
					if offset(a.zone, now) != offset(application, now) {
						t.Errorf("database %s, application %s, idle for %s, %s: decided %s", database, application, idle,
							now.Format(time.DateOnly), a.zone)
					}
				}
			}
		}
	}
	if decisions == 0 {
		t.Error("no zone was decided")
	}
}
