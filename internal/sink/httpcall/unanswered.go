package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/guard"
)

// unanswered returns the result of a request that ended with err and without an answer:
//
//	the guard does not allow the address                             permanent: nothing was dialled
//	the headers are more than the destination takes                  permanent, as after 431: nothing was sent
//	a certificate, a protocol or a proxy's credentials do not fit    misconfigured
//	the request was written, in part or as a whole                   temporary: it may have arrived
//	otherwise                                                        unreachable: it has certainly not arrived
func (t *trip) unanswered(err error, timedOut bool) delivery.Result {
	if detail, refused := guard.Refused(err); refused {
		return delivery.Result{Class: delivery.Permanent, Detail: detail}
	}
	if t.refused {
		err = errRefused
	}
	res := delivery.Result{Class: delivery.Unreachable, Detail: describe(err, t.URL.Host, t.client.Options.Timeout, timedOut)}
	switch {
	case strings.HasSuffix(err.Error(), "request header list larger than peer's advertised limit"): // which has no name outside of net/http
		res.Class = delivery.Permanent
	case WrongSettings(err):
		res.Class = delivery.Misconfigured
	case t.inDoubt(err):
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
		res.Detail += "; the request may have arrived"
	}
	var op *net.OpError
	if res.Class == delivery.Unreachable && errors.As(err, &op) && op.Op == "proxyconnect" {
		return res // which all destinations have in common
	}
	return t.client.Scoped(res)
}

func (t *trip) interrupted() delivery.Result {
	return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before " + t.URL.Host + " answered"}
}

// describe says why there is no answer from where, in one line; within is how long it was waited for.
func describe(err error, where string, within time.Duration, timedOut bool) string {
	var op *net.OpError
	switch {
	case timedOut || errors.Is(err, context.DeadlineExceeded):
		return "no answer from " + where + " within " + within.Round(time.Millisecond).String()
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return where + " closed the connection before it answered"
	case errors.As(err, &op):
		return op.Error()
	case strings.Contains(err.Error(), "exceeded"):
		return where + " answered with a header of more than " + strconv.Itoa(maxAnswerHeader) + " bytes"
	case strings.Contains(err.Error(), "malformed"), strings.Contains(err.Error(), "connection broken"), strings.Contains(err.Error(), "readLoopPeek"):
		// net/http quotes the answer, which may contain the payload, or says nothing of one that comes before the request.
		return where + " answered something that is not HTTP"
	}
	return where + ": " + err.Error()
}

// WrongSettings reports whether a request failed for what an operator has to change, here or at the destination.
func WrongSettings(err error) bool {
	var certificate *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var byProxy proxyError
	var op *net.OpError
	switch {
	case errors.As(err, &certificate), errors.As(err, &notTLS), errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, errProxy):
		return true
	case errors.As(err, &byProxy):
		return AboutCredentials(int(byProxy))
	case errors.As(err, &op) && op.Op == "remote error": // an alert, whose type has no name outside of crypto/tls
		return slices.ContainsFunc(alerts, func(alert string) bool { return strings.Contains(op.Err.Error(), alert) })
	}
	return false
}

// alerts are the TLS alerts that refuse the sink's certificate or another offer of the sink, as crypto/tls spells them.
var alerts = []string{
	"certificate", "access denied", "handshake failure", "protocol version not supported", "insufficient security level",
	"unrecognized name", "no application protocol", "unknown PSK identity",
}

// CheckProxy ends the detail of a request that a proxy has refused for its credentials.
const CheckProxy = ": check the credentials in HTTP_PROXY or HTTPS_PROXY, or of the setting proxy"

// proxyError is the status of a proxy that refused to connect to the destination.
type proxyError int

func (e proxyError) Error() string {
	text := "the proxy answered HTTP " + strconv.Itoa(int(e)) + " " + http.StatusText(int(e))
	if e == http.StatusProxyAuthRequired {
		text += CheckProxy
	}
	return text
}

func onProxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return proxyError(answer.StatusCode)
	}
	return nil
}

var errProxy = errors.New("HTTP_PROXY or HTTPS_PROXY is not a URL")

// proxy returns how a transport finds its proxy: the sink's own, or the one of the environment, but not for addresses from
// outside, which a guard can only look at where they are dialled.
func (o *Options) proxy(guarded bool) func(*http.Request) (*url.URL, error) {
	switch {
	case o.Proxy != "":
		u, _ := url.Parse(o.Proxy) // which is one
		return http.ProxyURL(u)
	case guarded:
		return nil
	}
	return environmentProxy
}

// environmentProxy is http.ProxyFromEnvironment with an error that does not repeat the variable, which may hold a password.
func environmentProxy(req *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(req)
	if err != nil {
		return nil, errProxy
	}
	return u, nil
}
