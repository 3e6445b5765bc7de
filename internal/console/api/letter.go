package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/notation"
)

// registerLetters adds the operations that read dead letters. Letters may be private, so only operators read them.
func (s *server) registerLetters(api huma.API) {
	get(api, "list-dead-letters", "/dead-letters", "Dead letters, the newest first, a page at a time, and their counts", s.letters)
	getAs(api, "find-job", "/jobs/{id}", "Where a job is: its records that are not settled, its dead letters, its events", auth.Operator, s.job)
	cancel := changing("cancel-jobs", http.MethodPost, "/jobs/cancel", "Cancel single jobs that wait, if dedupe is on")
	cancel.MaxBodyBytes = maxIDs
	register(api, cancel, auth.Operator, s.cancelJobs)
	getAs(api, "get-dead-letter", "/dead-letters/{partition}/{offset}", "One dead letter, with its headers and its payload", auth.Operator, s.letter)
}

type lettersIn struct {
	deadletter.Filter
	Lately

	After string `query:"after" maxLength:"16384" pattern:"^[A-Za-z0-9_-]*$" patternDescription:"next of the page before" doc:"next of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func (s *server) letters(ctx context.Context, in *lettersIn) (*answer[view.Letters], error) {
	last, err := span("last", in.Last)
	if err != nil {
		return nil, err
	}
	if !in.Since.IsZero() {
		last = 0
	}
	found, err := s.sources().Letters(ctx, view.LetterFilter{Filter: in.Filter, Last: last, After: in.After, Limit: in.Limit})
	for i := range found.List {
		if auth.Of(ctx).Role < auth.Operator { // an answer may be private, as payloads are
			found.List[i].Answer = ""
		}
	}
	return answered(found, err)
}

type jobIn struct {
	ID   string `path:"id" minLength:"1" maxLength:"256"`
	Last string `query:"last" maxLength:"32" default:"1d" example:"7d" doc:"how far back events and dead letters are looked for"`
}

func (s *server) job(ctx context.Context, in *jobIn) (*answer[*view.FoundJob], error) {
	last, err := span("last", in.Last)
	if err != nil {
		return nil, err
	}
	return answered(s.watcher.LookForJob(ctx, in.ID, last))
}

type cancelIn struct {
	Body struct {
		IDs      []string `json:"ids" minItems:"1" maxItems:"1000" nullable:"false" example:"[\"u-42\"]"`
		Campaign string   `json:"campaign,omitempty" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"theirs: they are cancelled without a search, which is bounded, and also if they are published later"`
		Because
	}
}

func (s *server) cancelJobs(ctx context.Context, in *cancelIn) (*answer[jobs.Cancelled], error) {
	ctx, err := s.writing(ctx, in.Body.Reason)
	if err != nil {
		return nil, err
	}
	for _, id := range in.Body.IDs {
		if !delivery.ValidID(id) {
			return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("ids: %q is no id of a job: it %s", notation.Shorten(id), delivery.IDRule))
		}
	}
	if id := in.Body.Campaign; id != "" {
		if _, err := s.watcher.With(ctx, id); err != nil {
			return nil, problem(err, Conflict)
		}
	}
	done, err := s.sources().CancelJobs(ctx, jobs.Cancellation{IDs: in.Body.IDs, Campaign: in.Body.Campaign})
	if err == nil {
		s.log.Info("jobs were cancelled", "ids", len(in.Body.IDs), "campaign", in.Body.Campaign, "by", auth.Of(ctx).Actor(), "request", auth.Of(ctx).Request)
	}
	return answered(done, err)
}

type letterIn struct {
	Partition int   `path:"partition" minimum:"0" maximum:"2147483647"`
	Offset    int64 `path:"offset" minimum:"0" maximum:"9223372036854774784"`
}

func (s *server) letter(ctx context.Context, in *letterIn) (*answer[*view.WholeLetter], error) {
	return answered(s.sources().Letter(ctx, deadletter.Place{Partition: in.Partition, Offset: in.Offset}))
}
