package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/notation"
)

func (s *server) registerReplays(api huma.API) {
	get(api, "list-replays", "/replays", "Replays, the newest first", s.replays)
	get(api, "get-replay", "/replays/{id}", "One replay", s.oneReplay)
	change(api, "replay-dead-letters", http.MethodPost, "/replays", "Replay dead letters in the background, or count them", auth.Operator, s.startReplay)
	answers := api.OpenAPI().Paths["/replays"].Post.Responses // a dry run is answered with 200
	answers["202"] = &huma.Response{Description: "Accepted", Content: answers["200"].Content}
	change(api, "stop-replay", http.MethodPost, "/replays/{id}/stop", "Stop a replay", auth.Operator, s.stopReplay)
}

type replaysOut struct {
	Replays []replay.Job `json:"replays"`
}

func (s *server) replays(ctx context.Context, _ *nothing) (*answer[replaysOut], error) {
	return &answer[replaysOut]{replaysOut{s.known(ctx)}}, nil
}

// known returns the replays as they are at this moment, as far as the database answers.
func (s *server) known(ctx context.Context) []replay.Job {
	booked, _ := s.sources().Replays.Booked(ctx) // that it is away is said elsewhere
	return s.sources().Replays.List(booked)
}

type startIn struct {
	Body struct {
		deadletter.Filter
		Places     []string `json:"places,omitempty" minItems:"1" maxItems:"1000" nullable:"false" example:"[\"3/17\"]" doc:"the letters at these places alone, instead of those that match a filter"`
		DropExpiry bool     `json:"drop_expiry,omitempty" doc:"those that have expired, too, without their expiry"`
		Again      bool     `json:"again,omitempty" doc:"those that were replayed before, too"`
		ToTopic    string   `json:"to_topic,omitempty" maxLength:"249" doc:"ingress topic; absent: the one that each job came from"`
		DryRun     bool     `json:"dry_run,omitempty" doc:"only count"`
		Rate       string   `json:"rate,omitempty" maxLength:"64" pattern:"^ *[0-9]+([.][0-9]{0,6})?(/[0-9a-zµμ. ]+)? *$" patternDescription:"a rate such as 500, 2.5 or 150/m, not negative" default:"100" doc:"500, 150/m"`
		Limit      int      `json:"limit,omitempty" minimum:"0" maximum:"100000" doc:"letters at most: what a dry run has counted. Required but in a dry run"`
		Why        string   `json:"why,omitempty" maxLength:"500" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]*$" patternDescription:"one line without control characters" doc:"one line"`
	}
}

type startOut struct {
	Status int
	Body   struct {
		Outcome deadletter.ReplayReport `json:"outcome"`
		Job     *replay.Job             `json:"job,omitempty" doc:"absent of a dry run"`
	}
}

func (s *server) startReplay(ctx context.Context, in *startIn) (*startOut, error) {
	jobs := s.sources().Replays
	places, err := in.places()
	if err != nil {
		return nil, err
	}
	b := &in.Body
	o := deadletter.ReplayOptions{Filter: b.Filter, DropExpiry: b.DropExpiry, Again: b.Again, ToTopic: b.ToTopic, Limit: b.Limit}
	o.Places = places
	if t := o.ToTopic; t != "" && !slices.Contains(s.sources().Ingress, t) {
		return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("to_topic %s is not among kafka.topics, so no daemon would read it; add it there", notation.Shorten(t)))
	}
	out := &startOut{Status: http.StatusOK}
	if in.Body.DryRun {
		if out.Body.Outcome, err = jobs.Count(ctx, o); err != nil {
			return nil, problem(err, Conflict)
		}
		return out, nil
	}
	if o.Rate, err = view.ParseRate(in.Body.Rate); err != nil || o.Rate.Zero() || o.Limit < 1 {
		return nil, huma.Error422UnprocessableEntity("give a limit above 0, which a dry run counts, and a rate above 0 such as 100 or 150/m")
	}
	if err := view.CheckReason("why", in.Body.Why); err != nil {
		return nil, problem(err, Conflict)
	}
	job, err := jobs.Start(auth.Of(ctx).Actor(), in.Body.Why, in.Body.Rate, o)
	switch {
	case errors.Is(err, replay.ErrBusy):
		return nil, fail(replayRunning, view.Line(err))
	case err != nil:
		return nil, absent(view.Line(err))
	}
	out.Status, out.Body.Job = http.StatusAccepted, &job
	return out, nil
}

// places returns where the letters are that are chosen one by one, each once; nil: all that the filter selects.
func (in *startIn) places() (list []deadletter.Place, err error) {
	for _, text := range slices.Compact(slices.Sorted(slices.Values(in.Body.Places))) {
		place, ok := view.ParsePlace(text)
		if !ok {
			return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("places: %q is no place of a dead letter, such as 3/17", notation.Shorten(text)))
		}
		list = append(list, place)
	}
	if list != nil && !reflect.DeepEqual(in.Body.Filter, deadletter.Filter{}) {
		return nil, huma.Error422UnprocessableEntity("give either places or a filter, not both")
	}
	return list, nil
}

type replayIn struct {
	ID string `path:"id" maxLength:"64"`
}

// replay returns a replay; without one it is a problem.
func (s *server) replay(ctx context.Context, id string) (*replay.Job, error) {
	for _, job := range s.known(ctx) {
		if job.ID == id {
			return &job, nil
		}
	}
	return nil, huma.Error404NotFound("there is no such replay; the last 100 are remembered")
}

func (s *server) oneReplay(ctx context.Context, in *replayIn) (*answer[*replay.Job], error) {
	job, err := s.replay(ctx, in.ID)
	return &answer[*replay.Job]{job}, err
}

type stopOut struct {
	Body struct {
		Stopped bool `json:"stopped" doc:"the batch that is being written is finished first, and another process is asked, which takes some seconds; false: it has ended before"`
	}
}

func (s *server) stopReplay(ctx context.Context, in *replayIn) (*stopOut, error) {
	if _, err := s.replay(ctx, in.ID); err != nil {
		return nil, err
	}
	out := &stopOut{}
	out.Body.Stopped = s.sources().Replays.Stop(in.ID)
	return out, nil
}
