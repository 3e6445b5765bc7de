package api

import "github.com/pacer/pacer/internal/delivery"

// Parts that the requests of several operations have. huma looks only into those with exported names.

// ByID names what an operation is about.
type ByID struct {
	ID string `path:"id" maxLength:"256" pattern:"^[!-~]+$" patternDescription:"printable ASCII without spaces"`
}

// NewID names what an operation makes.
type NewID struct {
	ID string `json:"id" minLength:"1" maxLength:"256" pattern:"^[!-~]+$" patternDescription:"printable ASCII without spaces"`
}

// Matching is the revision that the caller has seen.
type Matching struct {
	IfMatch string `header:"If-Match" maxLength:"64" pattern:"^(|[*]|[0-9]{1,18}|(W/)?\"[0-9]{1,18}\")$" patternDescription:"a revision such as \"123\", or *" doc:"the revision that you have seen, as ETag gave it"`
}

// Because is why something is changed, in a body.
type Because struct {
	Reason string `json:"reason,omitempty" maxLength:"500" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]*$" patternDescription:"one line without control characters" doc:"one line for the record of changes"`
}

// BecauseOf is the same of an operation without a body.
type BecauseOf struct {
	Reason string `query:"reason" maxLength:"500" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]*$" patternDescription:"one line without control characters" doc:"one line for the record of changes"`
}

// OfWindow names a window of a quota.
type OfWindow struct {
	Span string `path:"span" maxLength:"64" pattern:"^[0-9a-zµμ. ]+$" patternDescription:"a span such as 36h or 7d" example:"1h" doc:"of the window, such as 1h"`
}

// Lately is how far back an operation looks.
type Lately struct {
	Last string `query:"last" default:"1d" maxLength:"64" pattern:"^[0-9a-zµμ. ]*$" patternDescription:"a span such as 36h or 7d" doc:"how far back, such as 36h or 7d"`
}

// ToStatus is the status as a field of a change.
type ToStatus struct {
	Becomes string `json:"status,omitempty" enum:"active,paused,cancelled,completed" doc:"also of a campaign that is cancelled or completed, which takes it up again"`
}

func (s *ToStatus) becomes() *delivery.Status {
	if s.Becomes == "" {
		return nil
	}
	return (*delivery.Status)(&s.Becomes)
}

type statusIn struct {
	ByID
	Matching
	Body *struct {
		Because
	}
}
