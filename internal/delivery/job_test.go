package delivery

import (
	"testing"
	"time"
	"unsafe"
)

func TestExpired(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		job  Job
		want bool
	}{
		"never":                      {Job{History: History{FirstRead: now.Add(-time.Hour)}}, false},
		"at its time":                {Job{ExpiresAt: now}, true},
		"before its time":            {Job{ExpiresAt: now.Add(1)}, false},
		"at the end of the ttl":      {Job{History: History{FirstRead: now.Add(-time.Hour)}, Timing: Timing{TTL: time.Hour}}, true},
		"within the ttl":             {Job{History: History{FirstRead: now.Add(-time.Hour + 1)}, Timing: Timing{TTL: time.Hour}}, false},
		"its time before the ttl's":  {Job{History: History{FirstRead: now}, Timing: Timing{TTL: time.Hour}, ExpiresAt: now}, true},
		"not known when it was read": {Job{Timing: Timing{TTL: time.Hour}}, false},
	} {
		if got := c.job.Expired(now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestJobIsMarkedWithItsSpan: see Job.
func TestJobIsMarkedWithItsSpan(t *testing.T) {
	if n := unsafe.Sizeof(Job{}); n > 512 {
		t.Errorf("a job takes %d bytes", n)
	}
}

func TestShortStamp(t *testing.T) {
	for at, want := range map[time.Time]ShortStamp{
		{}: 0, time.Unix(0, 0): 0, time.Unix(-1, 0): 0, time.Unix(1<<32, 0): 0,
		time.Unix(1, 999_999_999): 1, time.Unix(1<<32-1, 0): 1<<32 - 1,
	} {
		if got := ShortStampOf(at); got != want {
			t.Errorf("%s: %d, want %d", at, got, want)
		}
		if want != 0 && !want.Time().Equal(at.Truncate(time.Second)) || want == 0 && !want.Time().IsZero() {
			t.Errorf("%d is %s", want, want.Time())
		}
	}
}

// TestScope: an id counts in what it is unique in.
func TestScope(t *testing.T) {
	topic := NewTopicID([16]byte{1})
	origin := Origin{Topic: "jobs", Partition: 1, Offset: 7, TopicID: topic}
	event := func(id, source string) []Header {
		return []Header{{Key: HeaderCloudEvent, Value: []byte(id)}, {Key: HeaderEventSource, Value: []byte(source)}}
	}
	for name, c := range map[string]struct {
		job  Job
		want string
	}{
		"of the producer":        {Job{ID: "a", History: History{Origin: origin}}, ""},
		"the place":              {Job{ID: "jobs/1/7", History: History{Origin: origin}}, topic.String()},
		"another place":          {Job{ID: "jobs/1/8", History: History{Origin: origin}}, ""},
		"of an event":            {Job{ID: "a", Meta: Meta{Headers: event("a", "/shop")}}, "/shop"},
		"of the last source":     {Job{ID: "a", Meta: Meta{Headers: append(event("a", "/shop"), event("a", "/till")...)}}, "/till"},
		"not that of its event":  {Job{ID: "b", Meta: Meta{Headers: event("a", "/shop")}}, ""},
		"of an event, no source": {Job{ID: "a", Meta: Meta{Headers: event("a", "")}}, ""},
		"none":                   {Job{}, ""},
	} {
		if got := c.job.Scope(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestStamp: an instant is what it was, to the nanosecond, or none.
func TestStamp(t *testing.T) {
	now := time.Date(2026, 11, 21, 1, 2, 3, 456789, time.FixedZone("", 3600))
	if got := StampOf(now).Time(); !got.Equal(now) || got.Location() != time.UTC {
		t.Errorf("%s", got)
	}
	for _, none := range []time.Time{{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if got := StampOf(none); got != 0 || !got.Time().IsZero() {
			t.Errorf("%s: %d", none, got)
		}
	}
}
