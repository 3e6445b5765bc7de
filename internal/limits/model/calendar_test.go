package model_test

import (
	"archive/zip"
	"errors"
	"fmt"
	"go/build"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/testservices"
)

// zoneNames are all time zones of the database that comes with Go.
func zoneNames(t *testing.T) (names []string) {
	z, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal("the time zones of the Go distribution are needed: ", err)
	}
	defer z.Close()
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

// changes are the instants of the zone's clock changes, and some others.
func changes(zone *time.Location, from, to time.Time) (list []time.Time) {
	for t := from.In(zone); ; {
		_, end := t.ZoneBounds()
		if end.IsZero() || end.After(to) {
			return list
		}
		if !end.After(t) { // as it says at the ends of leap years
			end = t.Add(36 * time.Hour)
		}
		list, t = append(list, end), end
	}
}

// midnights are the instants when the calendar, read every quarter of an hour, shows a later date than all before. People call that the
// beginning of a day.
func midnights(zone *time.Location, from, to time.Time) (list []time.Time) {
	latest := 0
	for t := from; t.Before(to); t = t.Add(15 * time.Minute) {
		y, m, d := t.In(zone).Date()
		if date := y*10_000 + int(m)*100 + d; date > latest {
			if latest > 0 {
				list = append(list, t)
			}
			latest = date
		}
	}
	return list
}

// A day, week or month begins with the first instant of its first date, in every zone, even when clocks change. A minute or an hour is a
// part of a day. Nothing can change but near a change of the clocks.
func TestCalendarsFollowEveryZone(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	from, to := time.Date(2012, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := map[string]bool{} // many zones have had the same clocks since
	for _, name := range zoneNames(t) {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		list := changes(zone, from, to)
		clocks := ""
		for _, at := range list {
			_, offset := at.Zone()
			clocks += fmt.Sprintln(at.Unix(), offset)
		}
		if seen[clocks] {
			continue
		}
		seen[clocks] = true
		anchors := map[string]model.Anchor{}
		for _, unit := range []string{"minute", "hour", "day", "week", "month"} {
			if anchors[unit], err = model.ParseAnchor(unit + "@" + name); err != nil {
				t.Fatal(err)
			}
		}
		for _, change := range list {
			checkDays(t, zone, anchors["day"], change)
			for _, off := range []time.Duration{-26 * time.Hour, -time.Hour, -time.Microsecond, 0, 20 * time.Minute, time.Hour, 50 * time.Hour} {
				for unit, a := range anchors {
					checkPeriod(t, zone, unit, a, change.Add(off))
				}
			}
			if t.Failed() {
				return
			}
		}
	}
}

// checkDays compares the days around a change with what the calendar shows.
func checkDays(t *testing.T, zone *time.Location, day model.Anchor, change time.Time) {
	begins := midnights(zone, change.Add(-54*time.Hour).Truncate(15*time.Minute), change.Add(54*time.Hour))
	for i := 2; i < len(begins); i++ {
		p := day.Period(begins[i-2].UnixMicro())
		q := day.Period(begins[i-1].UnixMicro() - 1)
		want := model.Period{begins[i-2].UnixMicro(), begins[i-1].UnixMicro(), begins[i].UnixMicro()}
		if p != want || q != want {
			t.Errorf("%s: the days around %s begin at %v and %v, the calendar says %v", zone, change.In(zone), show(p, zone), show(q, zone), show(want, zone))
		}
	}
}

// length is how long a period may be, clocks being changed by three hours at most.
var length = map[string][2]time.Duration{
	"minute": {time.Minute, time.Minute}, "hour": {time.Minute, 2 * time.Hour}, "day": {21 * time.Hour, 27 * time.Hour},
	"week": {165 * time.Hour, 171 * time.Hour}, "month": {669 * time.Hour, 747 * time.Hour},
}

// checkPeriod checks what holds for each period around an instant.
func checkPeriod(t *testing.T, zone *time.Location, unit string, a model.Anchor, now time.Time) {
	p := a.Period(now.UnixMicro())
	if now.UnixMicro() < p[0] || now.UnixMicro() >= p[1] || a.Period(p[0]) != p || a.Period(p[1]-1) != p || a.Period(p[1])[1] != p[2] {
		t.Errorf("%s of %s at %s: %v does not hold together", unit, zone, now.In(zone), show(p, zone))
	}
	for i, end := range p[1:] {
		took := time.Duration(end-p[i]) * time.Microsecond
		// A zone that changes to the other side of the date line leaves out a day or repeats it.
		if dateline := took%(24*time.Hour) == 0 && unit != "minute"; !dateline && (took < length[unit][0] || took > length[unit][1]) {
			t.Errorf("%s of %s at %s: %s long: %v", unit, zone, now.In(zone), took, show(p, zone))
		}
	}
	for _, at := range p {
		begin := time.UnixMicro(at).In(zone)
		_, m, s := begin.Clock()
		whole := s == 0 && (m == 0 || unit == "minute")
		if start, _ := begin.ZoneBounds(); !whole && !start.Equal(begin) {
			t.Errorf("%s of %s begins at %s", unit, zone, begin)
		}
	}
}

func show(p model.Period, zone *time.Location) (list []string) {
	for _, at := range p {
		list = append(list, time.UnixMicro(at).In(zone).Format("2006-01-02 15:04 MST"))
	}
	return list
}

func TestDaysThatZonesHad(t *testing.T) {
	for _, tc := range []struct {
		anchor, now string
		want        []string
	}{
		{"day@America/Santiago", "2027-09-05T12:00:00-03:00", []string{"2027-09-05 01:00 -03", "2027-09-06 00:00 -03", "2027-09-07 00:00 -03"}},
		{"day@America/Santiago", "2027-09-04T12:00:00-04:00", []string{"2027-09-04 00:00 -04", "2027-09-05 01:00 -03", "2027-09-06 00:00 -03"}},
		{"day@America/Havana", "2027-11-07T00:30:00-05:00", []string{"2027-11-07 00:00 CDT", "2027-11-08 00:00 CST", "2027-11-09 00:00 CST"}},
		{"month@America/Asuncion", "2023-10-15T12:00:00-03:00", []string{"2023-10-01 01:00 -03", "2023-11-01 00:00 -03", "2023-12-01 00:00 -03"}},
		// Clocks were put back at one minute past midnight.
		{"day@America/St_Johns", "2010-11-06T23:30:00-03:30", []string{"2010-11-07 00:00 NDT", "2010-11-08 00:00 NST", "2010-11-09 00:00 NST"}},
		{"day@Pacific/Apia", "2011-12-29T12:00:00-10:00", []string{"2011-12-29 00:00 -10", "2011-12-31 00:00 +14", "2012-01-01 00:00 +14"}},
		{"hour@Australia/Lord_Howe", "2027-10-03T02:45:00+11:00", []string{"2027-10-03 02:30 +11", "2027-10-03 03:00 +11", "2027-10-03 04:00 +11"}},
		{"hour@Australia/Lord_Howe", "2027-04-04T01:45:00+10:30", []string{"2027-04-04 01:00 +11", "2027-04-04 02:00 +1030", "2027-04-04 03:00 +1030"}},
		{"hour@Europe/Berlin", "2027-10-31T02:30:00+01:00", []string{"2027-10-31 02:00 CET", "2027-10-31 03:00 CET", "2027-10-31 04:00 CET"}},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		a, err := model.ParseAnchor(tc.anchor)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(tc.anchor, "@")
		zone, _ := time.LoadLocation(name)
		if got := show(a.Period(now.UnixMicro()), zone); !slices.Equal(got, tc.want) {
			t.Errorf("%s at %s: %v, want %v", tc.anchor, tc.now, got, tc.want)
		}
	}
}

// A day of the recipient is one of a keyed quota; elsewhere no one's day is meant.
func TestRecipientsDaysNeedAKey(t *testing.T) {
	windows := []delivery.Window{{Span: 24 * time.Hour, Limit: 3, Algorithm: delivery.AlgorithmFixed, Anchor: "day@recipient"}}
	for per, refused := range map[string]bool{"": true, "to": false} {
		q := model.WithDefaults(delivery.Quota{ID: "q", Per: per, Windows: windows})
		if err := model.CheckQuota(&q); errors.Is(err, model.ErrRecipient) != refused || !refused && err != nil {
			t.Errorf("per %q: %v", per, err)
		}
	}
}
