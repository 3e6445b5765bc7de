package httpcall

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// ByStatus returns what the status of an answer says:
//
//	2xx                  delivered
//	429                  throttled, for as long as the answer says (see Wait)
//	503 with Retry-After throttled
//	408, 425, 5xx        temporary, for as long as Retry-After says; 502, 503 and 504 not by the destination itself
//	other                misconfigured: about the settings, unless the body says more
func (a Answer) ByStatus(now time.Time) delivery.Result {
	class := delivery.Misconfigured
	switch {
	case a.Status >= 200 && a.Status < 300:
		class = delivery.Delivered
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable && a.RetryAfter(now) > 0:
		class = delivery.Throttled
	case a.Status >= 500 || a.Status == http.StatusRequestTimeout || a.Status == http.StatusTooEarly:
		class = delivery.Temporary
	}
	return a.As(class, now)
}

// As returns the result of a class for an answer: who said so, and how long to wait. Some statuses are those of a gateway that cannot reach
// the destination.
func (a Answer) As(class delivery.ResultClass, now time.Time) delivery.Result {
	res := delivery.Result{Class: class, Status: a.Status}
	switch class {
	case delivery.Throttled:
		res.RetryAfter = a.Wait(now)
	case delivery.Temporary:
		res.By, res.RetryAfter = delivery.ByDestination, a.RetryAfter(now)
		switch a.Status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			res.By = delivery.ByNobody
		}
	}
	return res
}

// Codes are what the answers of a service mean, where the status alone does not say it.
type Codes struct {
	// Classes are by the service's own code, or by a status, such as "410". The code counts before the status.
	Classes map[string]delivery.ResultClass
	// Wait is for a throttled answer that does not say how long to wait.
	Wait time.Duration
}

// Said is what a service says in an answer.
type Said struct {
	Code      string // its own, "" for none
	Means     string // the code that counts, if not Code
	MessageID string // that it gave the message, "" for none
	Foreign   bool   // the answer is not one of a service that has taken the message
}

// Judge returns the result for an answer. Success in an answer that is foreign is temporary: it is not the service's own.
func (c *Codes) Judge(a Answer, said Said, now time.Time) delivery.Result {
	res := a.ByStatus(now)
	for _, key := range [...]string{strconv.Itoa(a.Status), cmp.Or(said.Means, said.Code)} {
		if class, known := c.Classes[key]; known {
			res = a.As(class, now)
		}
	}
	switch {
	case res.Class == delivery.Throttled:
		res.RetryAfter = cmp.Or(res.RetryAfter, c.Wait)
	case res.Class == delivery.Delivered && !said.Foreign:
		res.Provider = &delivery.Provider{MessageID: said.MessageID}
		return res
	case res.Class == delivery.Delivered:
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
	}
	res.Detail = strings.TrimSpace("HTTP " + strconv.Itoa(a.Status) + " " + said.Code)
	if said.Code != "" {
		res.Provider = &delivery.Provider{Code: said.Code}
	}
	return res
}

// Read returns what the body of an answer says in JSON; nothing if it is not JSON of that kind, or was cut off.
func Read[T any](a Answer) (said T) {
	if json.Unmarshal(a.Body, &said) != nil {
		return *new(T)
	}
	return said
}

// Foreign reports whether an answer has a body that is no object in JSON: it is not that of a service which answers so, but a proxy's page.
func (a Answer) Foreign() bool {
	body := bytes.TrimSpace(a.Body)
	return len(body) > 0 && body[0] != '{'
}

// First returns the value of a key that begins an object in JSON, even if the object was cut off; nil if another key does.
func (a Answer) First(key string) any {
	d := json.NewDecoder(bytes.NewReader(a.Body))
	for _, want := range []json.Token{json.Delim('{'), key} {
		if t, err := d.Token(); err != nil || t != want {
			return nil
		}
	}
	value, _ := d.Token()
	return value
}

// AboutCredentials reports whether a status says that the destination, or a proxy before it, does not know or trust the sender.
func AboutCredentials(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired
}
