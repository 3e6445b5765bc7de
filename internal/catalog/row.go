package catalog

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

// The triggers refuse invalid rows, but a restored dump or a disabled trigger may bring them all the same. So the
// reading side accepts any row: an invalid row holds its campaign, with the reason, and everything else loads.

// campaignRecord is a row of campaigns as returned by the query.
type campaignRecord struct {
	delivery.Campaign // what needs no conversion

	rate                        string
	zone, zoneMissing, avoid    string
	per, ttl                    int64 // microseconds
	startsAt, endsAt, rampSince *time.Time
	pausedUntil, finishBy       *time.Time
	finishRate                  int64   // millionths of a unit per hour
	hours, ramp                 *string // JSON
}

// campaign returns the campaign of the record, without its quotas.
func (r *campaignRecord) campaign(known *interner) *delivery.Campaign {
	c := r.Campaign
	c.TTL, c.StartsAt, c.EndsAt, c.PausedUntil = micros(r.ttl), orZero(r.startsAt), orZero(r.endsAt), orZero(r.pausedUntil)
	c.FinishBy = orZero(r.finishBy)
	c.FinishRate, _ = delivery.NewRate(r.finishRate, time.Hour) // one that cannot be used is computed anew
	var err error
	if c.Rate, err = parseStoredRate(r.rate, micros(r.per)); err != nil {
		c.Invalid = err.Error()
	} else if c.Invalid = r.defect(); c.Invalid == "" {
		if err := r.schedule(&c, known); err != nil {
			c.Invalid = err.Error()
		}
	}
	return &c
}

// schedule sets the campaign's hours and ramp. The error says in one line why they are invalid.
func (r *campaignRecord) schedule(c *delivery.Campaign, known *interner) (err error) {
	zone, hours := r.zone, orZero(r.hours)
	if r.zone == delivery.ZoneRecipient {
		if zone = "UTC"; r.zoneMissing != "" && r.zoneMissing != delivery.ZoneHold {
			zone = r.zoneMissing
		}
		if hours != "" {
			if c.Local, err = known.hours(hours, zone, ""); err != nil {
				return err
			}
			hours = "" // minutes to avoid are those of the receiving service
		}
	}
	if r.zoneMissing != delivery.ZoneHold || r.zone != delivery.ZoneRecipient {
		c.Zone, _ = notation.Zone(zone) // whose clocks mean nothing where it is none
	}
	if hours != "" || r.avoid != "" {
		if c.Hours, err = known.hours(hours, zone, r.avoid); err != nil {
			return err
		}
	}
	if r.ramp != nil {
		c.Ramp, err = notation.DecodeRamp(*r.ramp, micros(r.per), orZero(r.rampSince))
	}
	return err
}

// read converts the current row. Text is taken from the raw values, so that what many rows have in common is kept once.
func (r *campaignRecord) read(rows pgx.Rows, raw [][]byte, words *interner) (*campaignEntry, error) {
	err := rows.Scan(nil, &r.Revision, nil, &r.Burst, nil, nil, &r.PriorityWeight, &r.MaxInFlight, nil, &r.ExpectedTotal, nil, nil, nil, nil, nil, nil,
		&r.finishRate, &r.Repaced, &r.per, &r.ttl, &r.startsAt, &r.endsAt, &r.rampSince, &r.pausedUntil, &r.finishBy)
	if err != nil {
		return nil, err
	}
	text := func(column int) *string {
		if raw[column] == nil {
			return nil
		}
		s := words.text(raw[column])
		return &s
	}
	r.ID, r.rate = string(raw[0]), string(raw[2])
	r.Status, r.Sink, r.Overflow = delivery.Status(words.text(raw[4])), words.text(raw[5]), delivery.Overflow(words.text(raw[8]))
	r.hours, r.zone, r.ramp = text(10), words.text(raw[11]), text(12)
	r.zoneMissing, r.avoid = words.text(raw[14]), words.text(raw[15])
	quotas, ok := words.lists[string(raw[13])]
	if !ok {
		field := rows.FieldDescriptions()[13]
		if err := rows.Conn().TypeMap().Scan(field.DataTypeOID, field.Format, raw[13], &quotas); err != nil {
			return nil, err
		}
		words.lists[string(raw[13])] = quotas
	}
	c := r.campaign(words)
	return &campaignEntry{row: c, fault: c.Invalid, quotas: quotas}, nil
}

// digestSeed makes digests of this process differ from those of others.
var digestSeed = maphash.MakeSeed()

// digestOf returns a hash of a row: rows that differ have different ones, as good as always.
func digestOf(raw [][]byte) uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	for _, value := range raw {
		_ = h.WriteByte(byte(min(len(value), 254) + 1)) // which never fails
		if value == nil {
			_ = h.WriteByte(0)
		}
		_, _ = h.Write(value)
	}
	return h.Sum64()
}

// interner are values that many rows have in common; each is kept once. They are those of one load.
type interner struct {
	texts    map[string]string
	schedule map[[3]string]*delivery.ActiveHours
	lists    map[string][]string
}

func newInterner() *interner {
	return &interner{texts: map[string]string{}, schedule: map[[3]string]*delivery.ActiveHours{}, lists: map[string][]string{}}
}

// text returns the bytes as a string.
func (w *interner) text(b []byte) string {
	text, ok := w.texts[string(b)]
	if !ok {
		text = string(b)
		w.texts[text] = text
	}
	return text
}

func (w *interner) hours(text, zone, avoid string) (*delivery.ActiveHours, error) {
	key := [3]string{text, zone, avoid}
	if hours, ok := w.schedule[key]; ok {
		return hours, nil
	}
	hours, err := notation.DecodeHours(text, zone, avoid)
	if err == nil {
		w.schedule[key] = hours
	}
	return hours, err
}

// orZero returns what p points to, the zero value if p is nil.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// defect says in one line why the campaign cannot be used; "" if it can.
func (r *campaignRecord) defect() string {
	switch {
	case !delivery.ValidCampaign(r.ID):
		return "id " + delivery.IDRule + ", and not " + delivery.UnknownCampaign
	case !slices.Contains(statuses, r.Status):
		return fmt.Sprintf("status %q is not active, paused, cancelled or completed", r.Status)
	case !slices.Contains(overflows, r.Overflow):
		return fmt.Sprintf("overflow %q is not lane or block", r.Overflow)
	case r.Revision < 0 || r.Revision >= delivery.MaxRowRevision:
		return fmt.Sprintf("revision must lie between 0 and %d; leave it to the triggers", int64(delivery.MaxRowRevision))
	case r.Burst < 0:
		return "burst must not be negative"
	case r.PriorityWeight < 1:
		return "priority_weight must be at least 1"
	case r.MaxInFlight < 0:
		return "max_in_flight must not be negative; 0 is no limit"
	case r.ttl < 0:
		return "job_ttl must not be negative; null is no limit"
	}
	return ""
}

// parseStoredRate converts a numeric, in decimal digits, and its period to a rate.
func parseStoredRate(units string, per time.Duration) (delivery.Rate, error) {
	var rate delivery.Rate
	n, err := notation.ParseMicros(units)
	if err == nil {
		rate, err = delivery.NewRate(n, per)
	}
	if err != nil {
		err = fmt.Errorf("rate %q: %w", units+"/"+notation.FormatSpan(per), err)
	}
	return rate, err
}

// micros converts microseconds to a duration; the queries bound n far below the overflow.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

var (
	statuses  = []delivery.Status{delivery.StatusActive, delivery.StatusPaused, delivery.StatusCancelled, delivery.StatusCompleted}
	overflows = []delivery.Overflow{delivery.OverflowLane, delivery.OverflowBlock}
)

// keyRowsOf reads the rows of pacer.quota_keys of a quota, as JSON. Unreadable windows become one of 0, which makes the quota invalid.
func keyRowsOf(text *string) map[string]delivery.KeyRow {
	if text == nil {
		return nil
	}
	var rows map[string]struct {
		Windows   string     `json:"windows"`
		HeldUntil *time.Time `json:"held_until"`
	}
	_ = json.Unmarshal([]byte(*text), &rows) // the database has made it
	keys := make(map[string]delivery.KeyRow, len(rows))
	for key, r := range rows {
		windows, err := notation.ParseWindows(r.Windows)
		if err != nil && r.Windows != "" {
			windows = make([]delivery.Window, 1)
		}
		keys[key] = delivery.KeyRow{Windows: model.WindowsWithDefaults(windows), HeldUntil: orZero(r.HeldUntil).UTC()}
	}
	return keys
}
