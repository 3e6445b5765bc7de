package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// shownPayload bounds how much of a payload a page shows.
const shownPayload = 4 << 10

// fillLetter shows one dead letter, with the beginning of its payload.
func fillLetter(ctx context.Context, s *Site, query url.Values, c *content) {
	at, ok := view.ParsePlace(query.Get("place"))
	if !ok {
		c.fail(http.StatusNotFound, "There is no dead letter %s.", notation.Shorten(query.Get("place")))
		return
	}
	c.Title = "Dead letter " + query.Get("place")
	letter, err := s.watcher.WholeLetter(ctx, at)
	if err != nil && !errors.Is(err, view.ErrAsking) {
		c.refuse(err)
		return
	}
	data := struct {
		Letter  *view.WholeLetter // nil: it is being read
		Place   string
		Payload string // the beginning, if it is text
		Cut     bool
	}{Letter: letter, Place: query.Get("place")}
	if letter != nil && letter.Payload != nil {
		data.Payload = *letter.Payload
	}
	if data.Cut = len(data.Payload) > shownPayload; data.Cut {
		data.Payload = strings.ToValidUTF8(data.Payload[:shownPayload], "")
	}
	c.Data = data
}
