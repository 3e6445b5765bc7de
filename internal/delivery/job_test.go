package delivery

import (
	"testing"
	"time"
)

func TestExpired(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		job  Job
		want bool
	}{
		"never":                      {Job{FirstRead: now.Add(-time.Hour)}, false},
		"at its time":                {Job{ExpiresAt: now}, true},
		"before its time":            {Job{ExpiresAt: now.Add(1)}, false},
		"at the end of the ttl":      {Job{FirstRead: now.Add(-time.Hour), TTL: time.Hour}, true},
		"within the ttl":             {Job{FirstRead: now.Add(-time.Hour + 1), TTL: time.Hour}, false},
		"its time before the ttl's":  {Job{FirstRead: now, TTL: time.Hour, ExpiresAt: now}, true},
		"not known when it was read": {Job{TTL: time.Hour}, false},
	} {
		if got := c.job.Expired(now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
