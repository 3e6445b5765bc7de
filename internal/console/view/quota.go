package view

import (
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
)

// QuotaSettings are what people set of a quota, as they write it.
type QuotaSettings struct {
	ID             string   `json:"id"`
	Revision       int64    `json:"revision"`
	Windows        []string `json:"windows" doc:"as 300/1m, 20/10s:log, 5000/1d:fixed:day@Europe/Moscow; none: it does not bind"`
	Mode           string   `json:"mode"`
	Spend          string   `json:"spend"`
	OnStoreFailure string   `json:"on_store_failure"`
	Rollout        int64    `json:"rollout" doc:"percent of its campaigns that it counts and limits"`
	Unit           string   `json:"unit"`
	catalog.Keying
	Shard       int      `json:"shard"`
	Campaigns   int      `json:"campaigns" doc:"how many it limits"`
	CampaignIDs []string `json:"campaign_ids" doc:"at most 1,000 of them"`

	UpdatedAt *time.Time `json:"updated_at,omitempty"`
}

// Seen returns the revision of the quota when it was read.
func (s *QuotaSettings) Seen() int64 { return s.Revision }

// QuotaEdit is a change of a quota, as people write it; what is nil stays, or gets its default in a new one.
type QuotaEdit struct {
	catalog.QuotaChange

	Windows *[]string `json:"windows,omitempty" maxItems:"64" example:"[\"300/1m\"]" doc:"all of them; 300/1m slides, 20/10s:log is exact, 5000/1d:fixed begins at its first use, 5000/1d:fixed:day@Europe/Moscow with the day" nullable:"false"`
}

// Adjustment corrects what a window of a quota has counted.
type Adjustment struct {
	Span  string // of the window
	Used  int64
	Lower bool // also where that makes room
}

// Adjusted is what an adjustment did.
type Adjusted struct {
	Quota  string `json:"quota"`
	Window string `json:"window"`
	Limit  int64  `json:"limit"`
	Before int64  `json:"before" doc:"units that were counted"`
	Used   int64  `json:"used" doc:"units that are counted now"`
}

// NewQuota is what the form of a new quota begins with.
func NewQuota() *QuotaSettings {
	return &QuotaSettings{Windows: []string{}, CampaignIDs: []string{}, Mode: "strict", Spend: "greedy", OnStoreFailure: "closed", Rollout: 100, Unit: "units"}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// QuotaForm lists the fields of the form of a quota.
var QuotaForm = []Setting[QuotaSettings, QuotaEdit]{
	{
		Name: "windows", Label: "Windows", Hint: "300/1m, 15750/1h; 5000/1d:fixed:day@Europe/Moscow; empty: it does not bind",
		Text: func(s *QuotaSettings) string { return strings.Join(s.Windows, ", ") },
		set: func(e *QuotaEdit, text string) error {
			list := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
			e.Windows = &list
			return nil
		},
		given: func(e *QuotaEdit) bool { return e.Windows != nil },
	},
	choice(words("mode", "Mode", "strict (exact), shadow (evaluated and reported, does not bind) or eventual (approximate)", func(s *QuotaSettings) string { return s.Mode }, func(e *QuotaEdit) **string { return &e.Mode }), "strict", "shadow", "eventual"),
	choice(words("spend", "Spend", "greedy (as fast as asked for) or even (over the span)", func(s *QuotaSettings) string { return s.Spend }, func(e *QuotaEdit) **string { return &e.Spend }), "greedy", "even"),
	choice(words("on_store_failure", "While Redis is away", "closed (wait), local-share (each daemon its share) or open", func(s *QuotaSettings) string { return s.OnStoreFailure }, func(e *QuotaEdit) **string { return &e.OnStoreFailure }), "closed", "local-share", "open"),
	numbers("rollout", "Rollout", "percent of its campaigns that it counts and limits", func(s *QuotaSettings) int64 { return s.Rollout }, func(e *QuotaEdit) **int64 { return &e.Rollout }),
	words("per", "By key", "of a new quota: the key of jobs, such as recipient, of which each value has the windows for itself; empty for none", func(s *QuotaSettings) string { return s.Per }, func(e *QuotaEdit) **string { return &e.Per }),
	words("max_wait", "Max wait", "by key: 6h, or 0 to skip at once; empty: as long as the job may wait", func(s *QuotaSettings) string { return orEmpty(s.MaxWait) }, func(e *QuotaEdit) **string { return &e.MaxWait }),
	choice(words("keyless", "Without the key", "by key: jobs are dead (letters) or pass", func(s *QuotaSettings) string { return s.Keyless }, func(e *QuotaEdit) **string { return &e.Keyless }), "", "dead", "pass"),
	choice(words("count", "Counts", "by key: attempts, or deliveries, which gives back what was not delivered", func(s *QuotaSettings) string { return s.Count }, func(e *QuotaEdit) **string { return &e.Count }), "", "attempts", "deliveries"),
	choice(words("unit", "Unit", "units (weights of jobs) or bytes (of payloads; mode eventual only)", func(s *QuotaSettings) string { return s.Unit }, func(e *QuotaEdit) **string { return &e.Unit }), "units", "bytes"),
}
