package api

import (
	"context"

	"github.com/pacer/pacer/internal/console/view"
)

type sinksOut struct {
	Sinks []*view.Sink `json:"sinks"`
}

type sinksIn struct {
	Destinations int `query:"destinations" minimum:"0" maximum:"10000" default:"20" doc:"how many closed destinations of each sink are listed at most"`
}

func (s *server) sinks(ctx context.Context, in *sinksIn) (*answer[sinksOut], error) {
	return &answer[sinksOut]{sinksOut{append([]*view.Sink{}, s.watcher.Sinks(ctx, s.watcher.Fresh(ctx), in.Destinations)...)}}, nil
}

type openSinkIn struct {
	ByID
	Body *struct {
		Destination string `json:"destination,omitempty" maxLength:"1024" doc:"one of its destinations, as closed ones are named; by default the sink itself, with its destinations as they are"`
		Because
	}
}

type openedSink struct {
	Sink        string `json:"sink"`
	Destination string `json:"destination,omitempty"`
	Opened      bool   `json:"opened" doc:"false: it was open"`
}

func (s *server) openSink(ctx context.Context, in *openSinkIn) (*answer[openedSink], error) {
	destination, reason := "", ""
	if in.Body != nil {
		destination, reason = in.Body.Destination, in.Body.Reason
	}
	ctx, err := view.By(ctx, reason)
	if err != nil {
		return nil, problem(err, Conflict)
	}
	opened, err := s.sources().Open(ctx, in.ID, destination)
	return answered(openedSink{in.ID, destination, opened}, err)
}
