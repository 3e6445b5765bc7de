package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/view"
)

// liveEvery is how often a stream looks for news.
const liveEvery = time.Second

// registerLive adds the stream of events. The pages share its bounds.
func (s *server) registerLive(api huma.API) {
	o := huma.Operation{
		OperationID: "live", Method: http.MethodGet, Path: "/live", Summary: "A stream of what one of the lists answers, again and again",
		Description: "Server-sent events: the data of each is what the operation of this name answers at that moment, as one line of JSON. One is sent " +
			"at once, and then once a second if anything has changed; a comment is sent every 15 seconds. The stream ends when the token is no longer good, " +
			"or the process stops: connect again.",
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}},
		}}},
	}
	register(api, o, auth.Viewer, func(_ context.Context, in *liveIn) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) { s.live(api, ctx, in) }}, nil
	})
}

type liveIn struct {
	Of string `query:"of" enum:"status,campaigns,quotas,sinks,daemons,replays" default:"status" doc:"whose answers are streamed; the other parameters are those of campaigns, and after and limit of quotas"`
	CampaignsOf
}

// look returns what the stream tells of.
func (s *server) look(ctx context.Context, in *liveIn) (any, error) {
	switch in.Of {
	case "campaigns":
		return body(s.campaigns(ctx, &campaignsIn{CampaignsOf: in.CampaignsOf}))
	case "quotas":
		return body(s.quotas(ctx, &quotasIn{After: in.After, Limit: in.Limit}))
	case "sinks":
		return body(s.sinks(ctx, &sinksIn{Destinations: view.ListedOfSink}))
	case "daemons":
		return body(s.daemons(ctx, nil))
	case "replays":
		return replaysOut{s.watcher.Replays(ctx)}, nil
	}
	return body(s.status(ctx, nil))
}

func body[T any](out *answer[T], err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return out.Body, nil
}

func (s *server) live(api huma.API, ctx huma.Context, in *liveIn) {
	r, w := humago.Unwrap(ctx)
	if _, err := s.look(r.Context(), in); err != nil {
		writeProblem(api, ctx, err)
		return
	}
	err := s.hub.Serve(w, r, auth.Viewer, liveEvery, func(ctx context.Context) ([]byte, error) {
		found, err := s.look(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(found) //nolint:wrapcheck // it only ends the stream
	})
	if errors.Is(err, live.ErrFull) {
		ctx.SetHeader("Retry-After", strconv.Itoa(int(live.RetryAfter.Seconds())))
		writeProblem(api, ctx, fail(busy, view.Line(err)))
	}
}
