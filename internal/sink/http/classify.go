package http

import (
	"net/http"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// classify returns the result for an answer:
//
//	2xx                     delivered
//	429                     throttled, for as long as the answer says (see waitOf)
//	503 with Retry-After    throttled
//	408, 425, 5xx           temporary, for as long as Retry-After says; 502, 503 and 504 not by the destination itself
//	401, 403, 407           misconfigured: the credentials are wrong, whatever the job
//	3xx                     misconfigured: following would re-send the payload, maybe to another party, and not as a POST;
//	                        permanent if the address came from the job, since then so does where it leads
//	101                     misconfigured: it answers an upgrade that was not asked for
//	other                   permanent
func (c *client) classify(resp *http.Response, now time.Time) delivery.Result {
	code := resp.StatusCode
	res := Answer{Status: code, Header: resp.Header}.ByStatus(now)
	switch {
	case res.Class == delivery.Delivered:
		return res
	case res.Class != delivery.Misconfigured || aboutCredentials(code):
	case code >= 400 || c.reach == byJob:
		res.Class = delivery.Permanent
	}
	res.Detail = c.scrub(c.statusDetail(resp))
	return res
}

// answerer is who answers with a status. Some are those of a gateway that cannot reach the destination.
func answerer(code int) delivery.Answerer {
	switch code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return delivery.ByNobody
	}
	return delivery.ByDestination
}

// aboutCredentials reports whether a status says that the destination, or a proxy before it, does not know or trust the
// sender.
func aboutCredentials(code int) bool {
	return code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusProxyAuthRequired
}

// maxLocation bounds the address in a detail, in bytes: a longer one would be cut before its end.
const maxLocation = 120

// statusDetail describes an answer by its status alone: the body may contain the payload or a credential.
func (c *client) statusDetail(resp *http.Response) string {
	code := resp.StatusCode
	detail := "HTTP " + strconv.Itoa(code)
	if text := http.StatusText(code); text != "" {
		detail += " " + text
	}
	detail += " from " + c.where
	whose := "the sink's"
	if c.reach == byTable {
		whose = "the destination's"
	}
	switch {
	case code == http.StatusProxyAuthRequired:
		detail += ": check the credentials in HTTP_PROXY or HTTPS_PROXY"
	case aboutCredentials(code):
		detail += ": check " + whose + " credentials"
	case code >= 300 && code < 400:
		detail += ": redirects are not followed"
		if to, err := resp.Location(); err == nil && len(to.String()) <= maxLocation {
			detail += "; set " + whose + " url to where it moved: " + Redacted(to.String())
		}
	}
	return detail
}
