package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/notation"
)

// Setting is one field of what people set of a campaign, a quota or a destination. Its name is that of the API. Forms and flags are made
// of it.
type Setting struct {
	Name, Label, Hint string
	Options           []string // that there are; nil: any text
	Input             Input
}

// Input is what a field takes.
type Input int

// What a field takes. A time is one of the clocks of the campaign's zone. A list is of words, of quotas of ids, and headers are an object.
const (
	InputText Input = iota
	InputNumber
	InputTime
	InputZone
	InputSink
	InputList
	InputQuotas
	InputHeaders
)

// CampaignForm lists what people set of a campaign.
var CampaignForm = []Setting{
	{Name: "rate", Label: "Rate", Hint: "500 (per second), 2.5, 150/m, 1/h; 0 holds"},
	{Name: "ramp", Label: "Ramp", Hint: "how the rate grows: start=10,add=5,every=1m or start=10,factor=1.5,every=1h; empty for none"},
	{Name: "sink", Label: "Sink", Hint: "empty for the default one", Input: InputSink},
	{Name: "quotas", Label: "Quotas", Hint: "ids with spaces between them", Input: InputQuotas},
	{Name: "priority_weight", Label: "Priority weight", Hint: "share of a contended quota", Input: InputNumber},
	{Name: "burst", Label: "Burst", Hint: "units at once after idle time", Input: InputNumber},
	{Name: "max_in_flight", Label: "Max in flight", Hint: "per daemon; 0 for no limit", Input: InputNumber},
	{Name: "overflow", Label: "Overflow", Hint: "where jobs wait that do not fit in memory: lane, or block for where they were published", Options: []string{"lane", "block"}},
	{Name: "active_hours", Label: "Active hours", Hint: "mon-fri 09:00-21:00; sat 10:00-18:00; empty for always"},
	{Name: "time_zone", Label: "Time zone", Hint: "of its hours and times, such as Europe/Moscow; recipient: its hours are in the zone of each job, its times in UTC", Input: InputZone},
	{Name: "time_zone_missing", Label: "Time zone if missing", Hint: "of jobs that name none, with recipient: such as Europe/Moscow, or hold: they wait", Input: InputZone},
	{Name: "avoid_minutes", Label: "Avoid minutes", Hint: "of each hour, 0,15,30,45: nothing is sent from two minutes before to two minutes after; empty for none"},
	{Name: "starts_at", Label: "Starts at", Hint: "in its time zone; empty for at once", Input: InputTime},
	{Name: "ends_at", Label: "Ends at", Hint: "in its time zone; jobs expire then; empty for never", Input: InputTime},
	{Name: "finish_by", Label: "Finish by", Hint: "in its time zone; the jobs are spread until then; empty for none", Input: InputTime},
	{Name: "job_ttl", Label: "Job TTL", Hint: "older jobs expire: 36h, 7d; empty for never"},
	{Name: "expected_total", Label: "Expected total", Hint: "jobs, for estimates; 0 for unknown", Input: InputNumber},
	{Name: "note", Label: "Note", Hint: "one line for people, such as whom to ask before the rate is raised"},
}

// QuotaForm lists what people set of a quota.
var QuotaForm = []Setting{
	{Name: "windows", Label: "Windows", Hint: "300/1m, 15750/1h slide; 20/10s:log is exact; 5000/1d:fixed:day@Europe/Moscow begins with the day; empty: it does not bind", Input: InputList},
	{Name: "mode", Label: "Mode", Hint: "strict (exact), shadow (evaluated and reported, does not bind) or eventual (approximate)", Options: []string{"strict", "shadow", "eventual"}},
	{Name: "spend", Label: "Spend", Hint: "greedy (as fast as asked for) or even (over the span)", Options: []string{"greedy", "even"}},
	{Name: "on_store_failure", Label: "While Redis is away", Hint: "closed (wait), local-share (each daemon its share) or open", Options: []string{"closed", "local-share", "open"}},
	{Name: "rollout", Label: "Rollout", Hint: "percent of its campaigns that it counts and limits", Input: InputNumber},
	{Name: "per", Label: "By key", Hint: "of a new quota: the key of jobs, such as recipient, of which each value has the windows for itself; empty for none"},
	{Name: "max_wait", Label: "Max wait", Hint: "by key: 6h, or 0 to skip at once; empty: as long as the job may wait"},
	{Name: "keyless", Label: "Without the key", Hint: "by key: jobs are dead (letters) or pass", Options: []string{"", "dead", "pass"}},
	{Name: "count", Label: "Counts", Hint: "by key: attempts, or deliveries, which gives back what was not delivered", Options: []string{"", "attempts", "deliveries"}},
	{Name: "unit", Label: "Unit", Hint: "units (weights of jobs) or bytes (of payloads; mode eventual only)", Options: []string{"units", "bytes"}},
}

// DestinationForm lists what people set of a destination.
var DestinationForm = []Setting{
	{Name: "url", Label: "URL", Hint: "the whole address, with its query, which is not shown here; secrets belong into headers"},
	{Name: "sink", Label: "Sink", Hint: "that sends to it; empty for any with destinations", Input: InputSink},
	{Name: "headers", Label: "Headers", Hint: `all of them, as {"x-tenant": "blue", "authorization": "file:shop-7"}; empty for none`, Input: InputHeaders},
	{Name: "secrets", Label: "Secrets", Hint: "references to what signs its requests, the newest first, such as file:shop-7 or env:DESTINATION_SHOP_7; empty for none", Input: InputList},
	{Name: "max_in_flight", Label: "Max in flight", Hint: "of one daemon; 0 for as many as the sink has", Input: InputNumber},
}

// Values are what the API has of one thing, by name.
type Values map[string]any

// ValuesOf returns what the API shows of something.
func ValuesOf(shown any) (v Values) {
	text, _ := json.Marshal(shown) // texts and numbers never fail
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&v)
	return v
}

// Text returns what a form shows.
func (s *Setting) Text(of Values) string {
	switch value := of[s.Name].(type) {
	case string:
		if at, err := time.Parse(time.RFC3339, value); s.Input == InputTime && err == nil {
			zone, _ := of["time_zone"].(string)
			return strings.TrimSuffix(at.In(notation.ZoneOrUTC(zone)).Format("2006-01-02T15:04:05"), ":00")
		}
		return value
	case json.Number:
		return value.String()
	case []any:
		words := make([]string, len(value))
		for i := range value {
			words[i] = fmt.Sprint(value[i])
		}
		return strings.Join(words, " ")
	case map[string]any:
		if len(value) > 0 {
			text, _ := json.Marshal(value) // texts never fail
			return string(text)
		}
	}
	return ""
}

// Value returns what the API takes for a text that was typed.
func (s *Setting) Value(text string) (any, error) {
	switch s.Input {
	case InputNumber:
		n, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return nil, catalog.Fault(errors.Join(catalog.ErrInvalid, err), "%s: %q is out of range", s.Label, text)
		case err != nil:
			return nil, catalog.Fault(errors.Join(catalog.ErrInvalid, err), "%s: %q is not a whole number", s.Label, text)
		}
		return n, nil
	case InputList:
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), nil
	case InputQuotas:
		return strings.Fields(text), nil
	case InputHeaders:
		headers := map[string]string{}
		if text != "" && json.Unmarshal([]byte(text), &headers) != nil || headers == nil {
			return nil, catalog.Fault(catalog.ErrInvalid, `headers: %s is not an object of names and texts; use one such as {"x-tenant": "blue"}`, notation.Shorten(text))
		}
		return headers, nil
	}
	return text, nil
}

// EditOf returns the changes that a form makes to what there is now: nothing of a new row, which gets every typed value. Fields that it
// does not have stay.
func EditOf[E any](fields []Setting, now Values, form func(field *Setting) (text string, ok bool)) (*E, error) {
	changes := Values{}
	for i := range fields {
		field := &fields[i]
		text, ok := form(field)
		if text = strings.TrimSpace(text); !ok || text == field.Text(now) {
			continue
		}
		value, err := field.Value(text)
		if err != nil {
			return nil, err
		}
		changes[field.Name], now[field.Name] = value, value // a time zone is that of the times behind it
	}
	e := new(E)
	changes.into(e)
	return e, nil
}

// FillDefaults gives what is left out of a row that is written whole the value that it has in a new one.
func FillDefaults(fields []Setting, begin, e any) {
	defaults, given := ValuesOf(begin), ValuesOf(e)
	for i := range fields {
		field := &fields[i]
		if _, ok := given[field.Name]; !ok {
			given[field.Name], _ = field.Value(field.Text(defaults)) // a default is no mistake
		}
	}
	given.into(e)
}

func (v Values) into(e any) {
	text, _ := json.Marshal(v) // values of settings never fail, and the names are those of the API
	_ = json.Unmarshal(text, e)
}
