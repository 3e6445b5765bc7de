package sinktest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// APNs stands in for the Apple Push Notification service. It speaks HTTP/2 over TLS, and allows one stream on a connection until a
// request with a valid token. It refuses what the service would refuse, and counts the rest by device. The test decides the answers to
// these (see StartAPNs).
type APNs struct {
	*Server
	KeyFile string // of a signing key; its id is KEY1, and that of the team TEAM1

	key *ecdsa.PublicKey

	received counter // by device
	mu       sync.Mutex
	headers  []map[string]string
	tokens   []string       // those of providers, as they came
	valid    map[int]bool   // connections with a valid token
	active   map[int]int    // requests, by connection
	limits   map[int]uint32 // by connection
	excess   int
}

// Limits of streams.
const (
	streamsBefore = 1
	streamsAfter  = 100
)

var (
	devicePath = regexp.MustCompile(`^/3/device/([0-9a-fA-F]+)$`)
	notifID    = regexp.MustCompile(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`)
)

// StartAPNs starts a stand-in that calls treat for each notification that is in order, the n-th for its device: it answers, or
// returns false for the usual answer.
func StartAPNs(t testing.TB, treat func(c *Call, device string, n int) (treated bool)) *APNs {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &APNs{
		key: &key.PublicKey, valid: map[int]bool{}, active: map[int]int{}, limits: map[int]uint32{}, KeyFile: writeFile(t, "AuthKey.p8", privatePEM(t, key)),
	}
	a.Server = Start(t, HTTP2, Options{Streams: streamsBefore}, func(c *Call) { a.take(c, treat) })
	a.URL = strings.TrimSuffix(a.URL, "/deliver")
	return a
}

// Fail answers with a reason.
func (a *APNs) Fail(c *Call, status int, reason string, header ...string) {
	c.JSON(status, `{"reason":"`+reason+`"}`, header...)
}

// Received returns how many notifications for a device were read to their end.
func (a *APNs) Received(device string) int { return a.received.of(device) }

// Headers returns those of the notifications, in order, by their names in lower case.
func (a *APNs) Headers() []map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.headers)
}

// Tokens returns how many different tokens came, and Excess how many requests were beyond the limit of their connection.
func (a *APNs) Tokens() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(slices.Compact(slices.Sorted(slices.Values(a.tokens))))
}

// Excess returns how many requests came beyond the limit of their connection.
func (a *APNs) Excess() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.excess
}

// SetLimit changes the limit of the connection of a request.
func (a *APNs) SetLimit(c *Call, streams uint32) {
	a.mu.Lock()
	a.limits[c.Connection] = max(streams, a.limits[c.Connection]) // those on their way count by the limit before
	a.mu.Unlock()
	c.Limit(streams)
}

func (a *APNs) take(c *Call, treat func(c *Call, device string, n int) bool) {
	jwt, isToken := strings.CutPrefix(c.Header.Get("Authorization"), "bearer ")
	a.mu.Lock()
	a.active[c.Connection]++
	if limit := max(a.limits[c.Connection], streamsBefore); a.active[c.Connection] > int(limit) {
		a.excess++
	}
	a.tokens = append(a.tokens, jwt)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.active[c.Connection]--
		a.mu.Unlock()
	}()
	if !isToken {
		a.Fail(c, 403, "MissingProviderToken")
		return
	}
	if why := a.check(jwt); why != "" {
		a.Fail(c, 403, why)
		return
	}
	a.mu.Lock()
	first := !a.valid[c.Connection]
	a.valid[c.Connection] = true
	a.mu.Unlock()
	if first {
		a.SetLimit(c, streamsAfter)
	}
	device, why := wrong(c)
	if why != "" {
		a.Fail(c, 400, why)
		return
	}
	all := map[string]string{}
	for name := range c.Header {
		all[strings.ToLower(name)] = c.Header.Get(name)
	}
	a.mu.Lock()
	a.headers = append(a.headers, all)
	a.mu.Unlock()
	n := a.received.add(device)
	if treat == nil || !treat(c, device, n) {
		c.Answer(200, "Apns-Id", c.Header.Get("Apns-Id"))
	}
}

// DeviceOf returns whose a notification is.
func DeviceOf(c *Call) string {
	device, _ := wrong(c)
	return device
}

// wrong returns the device, and what is wrong with the request.
func wrong(c *Call) (device, reason string) {
	path := devicePath.FindStringSubmatch(c.Path)
	push, priority := c.Header.Get("Apns-Push-Type"), c.Header.Get("Apns-Priority")
	id := c.Header.Get("Apns-Id")
	switch {
	case path == nil:
		return "", "BadDeviceToken"
	case strings.Trim(path[1], "0") == "":
		return "", "BadDeviceToken"
	case c.Header.Get("Apns-Topic") == "":
		return "", "MissingTopic"
	case push == "" || push == "background" && (priority == "10" || priority == ""): // 10 is the default
		return "", "InvalidPushType"
	case priority != "" && !slices.Contains([]string{"1", "5", "10"}, priority):
		return "", "BadPriority"
	case id != "" && !notifID.MatchString(id):
		return "", "BadMessageId"
	case len(c.Header.Get("Apns-Collapse-Id")) > 64:
		return "", "BadCollapseId"
	case len(c.Payload) == 0:
		return "", "PayloadEmpty"
	case len(c.Payload) > 4096:
		return "", "PayloadTooLarge"
	case !json.Valid(c.Payload):
		return "", "BadPayload"
	}
	return path[1], ""
}

// check returns what is wrong with a token.
func (a *APNs) check(jwt string) (reason string) {
	var head struct{ Alg, Kid string }
	var claims struct {
		Iss string
		Iat int64
	}
	if !signed(jwt, es256(a.key), &head, &claims) || head.Alg != "ES256" || head.Kid != "KEY1" || claims.Iss != "TEAM1" {
		return "InvalidProviderToken"
	}
	if age := time.Since(time.Unix(claims.Iat, 0)); age < -time.Minute || age > time.Hour {
		return "ExpiredProviderToken"
	}
	return ""
}

// Gone is the body of a 410.
func (a *APNs) Gone(c *Call, since time.Time) {
	c.JSON(410, fmt.Sprintf(`{"reason":"Unregistered","timestamp":%d}`, since.UnixMilli()))
}
