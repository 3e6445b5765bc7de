package notation

import (
	"fmt"
	"path"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// maxZones bounds the time zones that are kept: there are some 600, and a file system may have a zone under many names.
const maxZones = 2000

var (
	zones     sync.Map // name to *time.Location
	zoneCount atomic.Int32
)

// Zone finds a time zone by its name.
func Zone(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" || name[0] < 'A' || name[0] > 'Z' || path.Clean(name) != name {
		return nil, fmt.Errorf("time_zone %q is not the name of a time zone; use one such as Europe/Moscow or UTC", Shorten(name))
	}
	if zoneCount.Add(1) <= maxZones {
		zones.Store(name, zone)
	}
	return zone, nil
}

// ZoneOrUTC is Zone, and UTC if the name is none, such as that of the clocks of each recipient.
func ZoneOrUTC(name string) *time.Location {
	if zone, err := Zone(name); err == nil {
		return zone
	}
	return time.UTC
}

// FirstShown returns the first instant when the clocks of a zone show what a clock in UTC shows at another instant, or more. Clocks that are put back show
// some times twice, and the first counts. Clocks that are put forward leave some times out: then it is the instant of the change.
func FirstShown(shown time.Time, zone *time.Location) time.Time {
	from, to := shown.Add(-maxOffset).In(zone), shown.Add(maxOffset).In(zone)
	before := shown.Add(-Offset(from)).In(zone)
	change, changed := ClockChange(from, to)
	if !changed || before.Before(change) {
		return before
	}
	if after := shown.Add(-Offset(change)).In(zone); after.After(change) {
		return after
	}
	return change
}

// maxOffset is more than any zone's clocks have ever been ahead of UTC.
const maxOffset = 26 * time.Hour

// Offset is how far the clocks of the time's zone are ahead of UTC.
func Offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// ClockChange is when the zone's clocks are changed after from and not after to, if they are; not more than once, as clocks
// are not changed twice in some days. Time.ZoneBounds would not do: at the ends of leap years it names a change in the past.
func ClockChange(from, to time.Time) (at time.Time, changed bool) {
	was := Offset(from)
	if Offset(to) == was {
		return at, false
	}
	begin := from.Truncate(time.Second)
	seconds := sort.Search(int(to.Sub(begin)/time.Second), func(n int) bool {
		return Offset(begin.Add(time.Duration(n)*time.Second)) != was
	})
	return begin.Add(time.Duration(seconds) * time.Second), true
}
