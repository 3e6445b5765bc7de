package http

import (
	"net/http"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// classify returns the result for an answer: what its status says by itself (see httpcall.Answer.ByStatus), and of the others
//
//	401, 403, 407 misconfigured: the credentials are wrong, whatever the job
//	3xx           misconfigured: following would re-send the payload, maybe to another party, and not as a POST;
//	              permanent if the address came from the job, since then so does where it leads
//	101           misconfigured: it answers an upgrade that was not asked for
//	410           of a row of pacer.destinations: it is gone for good, and no job is to blame
//	other 4xx     permanent
func (c *Client) classify(a httpcall.Answer, now time.Time) delivery.Result {
	res := a.ByStatus(now)
	switch {
	case res.Class == delivery.Delivered:
		return res
	case a.Status == http.StatusGone && c.reach == byTable:
		res.Gone = true
	case res.Class == delivery.Misconfigured && !httpcall.AboutCredentials(a.Status) && (a.Status >= 400 || c.reach == byJob):
		res.Class = delivery.Permanent
	}
	res.Detail = c.statusDetail(a)
	return res
}

// maxLocation bounds the address in a detail, in bytes: a longer one would be cut before its end.
const maxLocation = 120

// statusDetail describes an answer by its status alone: the body may contain the payload or a credential.
func (c *Client) statusDetail(a httpcall.Answer) string {
	detail := "HTTP " + strconv.Itoa(a.Status)
	if text := http.StatusText(a.Status); text != "" {
		detail += " " + text
	}
	detail += " from " + a.URL.Host
	whose := "the sink's"
	if c.reach == byTable {
		whose = "the destination's"
	}
	switch {
	case a.Status == http.StatusProxyAuthRequired:
		detail += httpcall.CheckProxy
	case httpcall.AboutCredentials(a.Status):
		detail += ": check " + whose + " credentials"
	case a.Status >= 300 && a.Status < 400:
		detail += ": redirects are not followed"
		if to, err := a.URL.Parse(a.Header.Get("Location")); err == nil && a.Header.Get("Location") != "" && len(to.String()) <= maxLocation {
			detail += "; set " + whose + " url to where it moved: " + Redacted(to.String())
		}
	}
	return detail
}
