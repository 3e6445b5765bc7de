package smev

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

var uuidV1 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func genJob(t *rapid.T) *delivery.Job {
	text := rapid.StringMatching(`[!-~]{1,20}`)
	return &delivery.Job{
		ID: text.Draw(t, "id"), Campaign: text.Draw(t, "campaign"),
		Reading: delivery.Reading{Published: delivery.ShortStamp(rapid.Uint32().Draw(t, "published"))},
		History: delivery.History{Origin: delivery.Origin{Topic: text.Draw(t, "topic"), Offset: rapid.Int64Range(0, 1<<40).Draw(t, "offset")}},
	}
}

func genNow(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(1_700_000_000, 2_500_000_000).Draw(t, "now"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
}

// TestMessageIDIsOneOfSMEV: a UUID of version 1 in lower case, whose time is neither in the future nor a day ago, whenever
// the job was published and is sent.
func TestMessageIDIsOneOfSMEV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		who, now := identityOf(genJob(t)), genNow(t)
		k := who.periodAt(now)
		id := who.messageID(k)
		if !uuidV1.MatchString(id) {
			t.Fatalf("%s is no UUID of version 1", id)
		}
		if age := now.Sub(timeIn(t, id)); age < 0 || age >= period {
			t.Fatalf("%s has a time %s ago", id, age)
		}
		if !who.usable(k, now) {
			t.Fatal("it is not usable")
		}
	})
}

// TestMessageIDLasts: it is the same for a day from the publication, on every daemon and after a crash, and that of a request
// in doubt for two days from its time.
func TestMessageIDLasts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := genJob(t)
		published := genNow(t).Truncate(time.Second)
		job.Published = delivery.ShortStampOf(published)
		again := *job // as another daemon reads it
		within := func(label string) time.Time {
			return published.Add(time.Duration(rapid.Int64Range(-int64(ahead)+int64(time.Second), int64(period-ahead)-1).Draw(t, label)))
		}
		first, second := within("first"), within("second")
		a, b := identityOf(job), identityOf(&again)
		if x, y := a.messageID(a.periodAt(first)), b.messageID(b.periodAt(second)); x != y {
			t.Fatalf("%s at %s and %s at %s", x, first.Sub(published), y, second.Sub(published))
		}
		k := a.periodAt(first)
		job.Call.Provider = &delivery.Provider{MessageID: a.messageID(k)}
		later := first.Add(time.Duration(rapid.Int64Range(0, int64(60*24*time.Hour)).Draw(t, "later")))
		kept, inDoubt := a.triedAs(job, later)
		if !inDoubt || kept != k || a.usable(kept, later) != (later.Sub(timeIn(t, a.messageID(k))) < keptFor) {
			t.Fatalf("after %s: period %d, in doubt %t, usable %t", later.Sub(first), kept-k, inDoubt, a.usable(kept, later))
		}
	})
}

// TestMessageIDsDiffer: no two jobs have the same one, and none has that of another period.
func TestMessageIDsDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := genJob(t)
		b := *a
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			b.ID += "x"
		case 1:
			b.Campaign += "x"
		case 2:
			b.Origin.Offset++
		case 3:
			b.ID, b.Campaign = b.Campaign+"a", strings.TrimPrefix(a.ID, "a")
		}
		x, y, now := identityOf(a), identityOf(&b), genNow(t)
		k := x.periodAt(now)
		if x.messageID(k) == y.messageID(y.periodAt(now)) || x.messageID(k) == x.messageID(k+1) {
			t.Fatal("two have one id")
		}
		a.Call.Provider = &delivery.Provider{MessageID: y.messageID(k)}
		if _, inDoubt := x.triedAs(a, now); inDoubt {
			t.Fatal("the id of another destination is taken for its own")
		}
	})
}

// timeIn returns the time in a UUID of version 1.
func timeIn(t *rapid.T, id string) time.Time {
	hex := id[15:18] + id[9:13] + id[:8]
	var at int64
	for _, c := range hex {
		at = at<<4 | int64(strings.IndexRune("0123456789abcdef", c))
	}
	return time.Date(1582, 10, 15, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(at/unitsPerPeriod)).Add(time.Duration(at%unitsPerPeriod) * 100)
}
