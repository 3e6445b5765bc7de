package view

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/notation"
)

const (
	// lettersFor is how old what is known of dead letters may be: to look for them takes thousands of records of Kafka. While a page is
	// watched they are looked for again after half of it.
	lettersFor = time.Minute
	// LettersOf is how far back they are counted.
	LettersOf = time.Hour
)

// Found are the dead letters that a page shows.
type Found struct {
	Letters
	At time.Time // when they were looked for
}

// FoundJob is what is known of a job.
type FoundJob struct {
	ID   string   `json:"id"`
	Dead []Letter `json:"dead" doc:"its dead letters, the newest first"`
	jobs.Found
}

// lookFor is a question about what is found in Kafka. What has failed may soon be found.
func (l *Watcher) lookFor(kind, about string) question {
	q := question{kind: kind, about: about, fresh: lettersFor / 2, within: replay.LookWithin, keep: lettersFor}
	if l.cache.last(q).err != nil {
		q.fresh = closeFor
	}
	return q
}

// FindLetters returns dead letters, as they were found last, and has them looked for again if that is long ago; anew: also if it was some
// seconds ago. The error is ErrAsking before the first answer.
func (l *Watcher) FindLetters(ctx context.Context, f LetterFilter, anew bool) (Found, error) {
	q := l.lookFor("letters", fmt.Sprintf("%+v", f))
	if anew {
		q.fresh = closeFor
	}
	return cached(ctx, l.cache, q, func(ctx context.Context) (Found, error) {
		letters, err := l.sources.Letters(ctx, f)
		return Found{letters, time.Now()}, err
	})
}

// WholeLetter returns one dead letter. The error is ErrAsking while it has not been read yet.
func (l *Watcher) WholeLetter(ctx context.Context, at deadletter.Place) (*WholeLetter, error) {
	q := l.lookFor("letter", at.String()) // but for whether it was replayed, it never changes
	return cached(ctx, l.cache, q, func(ctx context.Context) (*WholeLetter, error) { return l.sources.Letter(ctx, at) })
}

// LookForJob looks where a job is, and how far back for its dead letters and events.
func (l *Watcher) LookForJob(ctx context.Context, id string, last time.Duration) (*FoundJob, error) {
	letters, err := l.sources.Letters(ctx, LetterFilter{Filter: deadletter.Filter{JobID: id}, Last: last, Limit: maxLetters})
	if err != nil {
		return nil, err
	}
	records, err := l.sources.Job(ctx, jobs.Question{ID: id, Since: time.Now().Add(-last)})
	if err != nil {
		return nil, err
	}
	if l.sources.Hidden {
		for i := range records.Results {
			records.Results[i] = withoutAnswer(records.Results[i])
		}
	}
	found := &FoundJob{ID: id, Dead: append([]Letter{}, letters.List...), Found: records}
	if letters.Next != "" {
		found.Unread = append(found.Unread, "only the newest dead letters were looked at; pacer dead list --job-id looks at all")
	}
	return found, nil
}

func withoutAnswer(event json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(event, &members) != nil {
		return nil
	}
	delete(members, "answer")
	text, _ := json.Marshal(members) // it was JSON
	return text
}

// FindJob is LookForJob for pages, which do not wait. The error is ErrAsking before the first answer.
func (l *Watcher) FindJob(ctx context.Context, id, last string) (*FoundJob, error) {
	span, err := notation.ParseSpan(last)
	if err != nil {
		return nil, catalog.Fault(catalog.ErrInvalid, "last: %s", err)
	}
	q := l.lookFor("job", last+" "+id)
	q.within = 2*replay.LookWithin + time.Second
	return cached(ctx, l.cache, q, func(ctx context.Context) (*FoundJob, error) { return l.LookForJob(ctx, id, span) })
}

// Dead is how many jobs have died lately.
type Dead struct {
	At      time.Time // zero: they were not counted yet
	Counts  []LetterCount
	Letters int
	More    bool // not all were counted: the newest ones were
	Err     error
}

// Of returns the counts of one campaign.
func (d *Dead) Of(campaign string) (list []LetterCount) {
	for _, count := range d.Counts {
		if count.Campaign == campaign {
			list = append(list, count)
		}
	}
	return list
}

// Dead returns how many jobs have died within the last hour, as it was counted last, and has them counted again if that was long ago: it
// takes thousands of records of Kafka.
func (l *Watcher) Dead(ctx context.Context) Dead {
	dead, _ := cached(ctx, l.cache, question{kind: "dead", fresh: lettersFor, within: replay.LookWithin, keep: LettersOf}, func(ctx context.Context) (Dead, error) {
		found, err := l.letters(ctx, LetterFilter{Last: LettersOf, Limit: 1})
		dead := Dead{At: time.Now(), Counts: found.Counts, More: found.More, Err: err}
		for _, count := range found.Counts {
			dead.Letters += count.Letters
		}
		return dead, nil
	})
	return dead
}
