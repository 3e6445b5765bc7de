package record

import (
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestZonesOfRecipients: the zone and the time by its clocks come in headers and envelopes, and stay what they are on every move: no offset is stored.
func TestZonesOfRecipients(t *testing.T) {
	for _, c := range []struct {
		rec           *delivery.Record
		zone, instant string // the instant is "" for none
		header, value string // of the record that is written
	}{
		{rec("p", "pacer-campaign", "c", "pacer-time-zone", "Asia/Yekaterinburg"), "Asia/Yekaterinburg", "", "pacer-time-zone", "Asia/Yekaterinburg"},
		{
			rec("p", "pacer-not-before-local", "2026-12-01T10:00", "pacer-campaign", "c", "pacer-time-zone", "Asia/Yekaterinburg"),
			"Asia/Yekaterinburg", "2026-12-01T05:00:00Z", "pacer-not-before-local", "2026-12-01T10:00:00",
		},
		{
			rec(`{"campaign":"c","payload":1,"not_before_local":"2026-12-01T10:00:07.5","time_zone":"Europe/Berlin"}`),
			"Europe/Berlin", "2026-12-01T09:00:07.5Z", "pacer-not-before-local", "2026-12-01T10:00:07.5",
		},
		{
			rec("p", "pacer-campaign", "c", "pacer-time-zone", "UTC", "pacer-not-before-local", "2026-12-01T10:00"),
			"UTC", "2026-12-01T10:00:00Z", "pacer-not-before-local", "2026-12-01T10:00:00",
		},
		{
			rec("p", "pacer-campaign", "c", "pacer-time-zone", "Europe/Berlin", "pacer-not-before", "2026-12-01T10:00:00+05:00"),
			"Europe/Berlin", "2026-12-01T05:00:00Z", "pacer-not-before", "2026-12-01T05:00:00Z",
		},
	} {
		job := Decode(c.rec, delivery.FromIngress, limits, readAt)
		for range 3 { // moves
			if job.Flaw != nil || job.Zone == nil || job.Zone.String() != c.zone {
				t.Fatalf("%v: %s in %s", c.rec.Headers, shape(job), job.Zone)
			}
			if is := job.NotBefore; c.instant == "" && !is.IsZero() || c.instant != "" && is.UTC().Format(time.RFC3339Nano) != c.instant {
				t.Errorf("%v: not before %s", c.rec.Headers, is)
			}
			written := new(Encoder).Encode(job, delivery.Reroute{Kind: delivery.ToTimer, Reason: delivery.ReasonHours}, readAt)
			written.Headers = slices.Clone(written.Headers)
			if got := written.Header(c.header); got != c.value {
				t.Errorf("%v: %s is written %q", c.rec.Headers, c.header, got)
			}
			if written.Header(delivery.HeaderLocal) != "" && written.Header(delivery.HeaderNotBefore) != "" {
				t.Errorf("%v: %v", c.rec.Headers, written.Headers)
			}
			job = Decode(&written, delivery.FromTimer, limits, readAt)
		}
	}
}
