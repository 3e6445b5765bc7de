package test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// sinkKind is a kind of sink under faults.
type sinkKind struct {
	name  string
	start func(t *testing.T, d *destination) sinkEnd
	never []fault // what its protocol does not know
	// queues: what a sink cannot write at once waits in it for a connection, a stream or a batch, at most as long as a request may take.
	queues bool
	// batches: the destination answers for several jobs at once, so that faults of single ones meet several.
	batches bool
}

// sinkEnd is a destination that runs.
type sinkEnd struct {
	settings string     // of the sink, without the braces
	dress    func(*job) // gives a job what the sink needs
	expire   func(bool) // expires the credential, or renews it; nil if the destination itself does
	taken    func() int // how many jobs are really there; nil if the destination itself counts
	check    func()     // looks at what is there besides, once all jobs are done; nil: nothing
}

// sinkKinds are all kinds that have a destination, in the order of the table.
var sinkKinds = []sinkKind{
	{name: "http", start: startHTTPEnd},
	{name: "fcm", start: startFCMEnd, never: []fault{throttlesHost, throttlesOne}},
	{name: "rustore", start: startRuStoreEnd, never: []fault{throttlesHost, throttlesOne, throttlesIt}},
	{name: "hms", start: startHMSEnd, never: []fault{throttlesHost, throttlesOne, throttlesIt}},
	{name: "apns", start: startAPNsEnd, never: []fault{throttlesHost, throttlesOne}, queues: true},
	{
		name: "kafka", start: startKafkaEnd, queues: true, batches: true,
		never: []fault{throttlesAll, throttlesHost, throttlesOne, throttlesIt, gone, alwaysFails, goesAway, goesAwayNow, refusesOne},
	},
	{name: "webpush", start: startWebPushEnd, never: []fault{throttlesAll, throttlesOne, throttlesIt}},
	{name: "telegram", start: startTelegramEnd, never: []fault{throttlesAll, throttlesHost, throttlesOne}},
	{
		name: "smtp", start: startSMTPEnd, queues: true,
		never: []fault{throttlesHost, throttlesOne, goesAway, goesAwayNow, refusesOne},
	},
	{name: "steps", start: startStepsEnd},
	{
		name: "smev", start: startSMEVEnd, // the adapter
		never: []fault{throttlesHost, throttlesOne, throttlesIt, goesAway, goesAwayNow, refusesOne},
	},
	{
		name: "smev-direct", start: startSMEVDirectEnd,
		never: []fault{throttlesHost, throttlesIt, gone, goesAway, goesAwayNow, refusesOne},
	},
}

// says are what a destination says for each fault; for faultless, and for what is not listed, that the job is taken.
type says map[fault]func()

func (s says) say(v *visit) {
	does := v.does
	if does == alwaysFails {
		does = fails
	}
	if s[does] == nil {
		does = faultless
	}
	s[does]()
}

// plainly answers over HTTP by statuses; what a job is told whose recipient is gone, and one that is taken, is given.
func plainly(c *sinktest.Call, v *visit, isGone, isTaken func()) {
	throttles := func() { c.Answer(http.StatusTooManyRequests, "Retry-After", "1", "X-About", string(v.does)) }
	says{
		fails:        func() { c.Answer(http.StatusInternalServerError) },
		gone:         isGone,
		refuses:      func() { c.Answer(http.StatusUnprocessableEntity) },
		distrusts:    func() { c.Answer(http.StatusUnauthorized) },
		throttlesAll: throttles, throttlesHost: throttles, throttlesOne: throttles, throttlesIt: throttles,
		faultless: isTaken,
	}.say(v)
}

func startHTTPEnd(t *testing.T, d *destination) sinkEnd {
	srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{}, func(c *sinktest.Call) {
		d.serve(c, c.ID, func(v *visit) {
			plainly(c, v, func() { c.Answer(http.StatusGone) }, func() { c.Answer(http.StatusAccepted) })
		})
	})
	srv.Leave = func(c *sinktest.Call) bool { return d.leaves(c.ID) }
	return sinkEnd{
		settings: fmt.Sprintf(`type: http, url: %q, ca_file: %q, bearer: t0ken, classes: {"410": rejected},
      rules: {throttled destination: 'headers["x-about"] == "%s"', throttled campaign: 'headers["x-about"] == "%s"',
        throttled recipient: 'headers["x-about"] == "%s"'}`, srv.URL, srv.CAFile, throttlesHost, throttlesOne, throttlesIt),
		dress: func(*job) {},
	}
}

func startFCMEnd(t *testing.T, d *destination) sinkEnd {
	var f *sinktest.FCM
	var expired atomic.Bool
	f = sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, _ int) bool {
		d.serve(c, recipient, says{
			fails:        func() { f.Fail(c, 500, "INTERNAL", "INTERNAL") },
			gone:         func() { f.Fail(c, 404, "NOT_FOUND", "UNREGISTERED") },
			refuses:      func() { f.Fail(c, 400, "INVALID_ARGUMENT", "INVALID_ARGUMENT") },
			throttlesAll: func() { f.Fail(c, 429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "Retry-After", "1") },
			throttlesIt:  func() { f.Throttle(c, "device:x", time.Second) },
			faultless:    func() { c.JSON(200, `{"name":"projects/demo/messages/`+recipient+`"}`) },
		}.say)
		return true
	})
	f.Token = func(_ int, c *sinktest.Call) bool {
		if expired.Load() {
			c.JSON(400, `{"error":"invalid_grant"}`)
		}
		return expired.Load()
	}
	f.Leave = func(c *sinktest.Call) bool { return d.leaves(sinktest.RecipientOf(c)) }
	return sinkEnd{
		settings: fmt.Sprintf(`type: fcm, url: %q, ca_file: %q, service_account_file: %q`, f.URL, f.CAFile, f.KeyFile),
		dress:    func(j *job) { j.payload = []byte(`{"token":"` + j.id + `","data":{"a":"b"}}`) },
		expire: func(is bool) {
			if expired.Store(is); is {
				f.Revoke()
			}
		},
	}
}

func startRuStoreEnd(t *testing.T, d *destination) sinkEnd {
	var f *sinktest.FCM
	f = sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, _ int) bool {
		d.serve(c, recipient, says{
			fails:        func() { f.Fail(c, 500, "INTERNAL", "") },
			gone:         func() { f.Fail(c, 404, "NOT_FOUND", "") },
			refuses:      func() { f.Fail(c, 400, "INVALID_ARGUMENT", "") },
			throttlesAll: func() { f.Fail(c, 429, "TOO_MANY_REQUESTS", "", "Retry-After", "1") },
			distrusts:    func() { f.Fail(c, 403, "PERMISSION_DENIED", "") },
			faultless:    func() { c.JSON(200, `{"name":"projects/demo/messages/`+recipient+`"}`) },
		}.say)
		return true
	})
	f.Leave = func(c *sinktest.Call) bool { return d.leaves(sinktest.RecipientOf(c)) }
	return sinkEnd{
		settings: fmt.Sprintf(`type: rustore, url: %q, ca_file: %q, project: %s, bearer: %q`, f.URL, f.CAFile, f.Project, f.Give()),
		dress:    func(j *job) { j.payload = []byte(`{"token":"` + j.id + `","data":{"a":"b"}}`) },
	}
}

func startHMSEnd(t *testing.T, d *destination) sinkEnd {
	var h *sinktest.HMS
	h = sinktest.StartHMS(t, func(c *sinktest.Call, recipient string, _ int) bool {
		d.serve(c, recipient, says{
			fails:        func() { h.Say(c, 500, "81000001", "Internal error") },
			gone:         func() { h.Say(c, 200, "80300007", "all tokens are invalid") },
			refuses:      func() { h.Say(c, 400, "80100003", "Illegal payload") },
			throttlesAll: func() { c.Answer(503, "Retry-After", "1") },
			distrusts:    func() { h.Say(c, 401, "80200003", "OAuth Token expired") },
			faultless:    func() { h.Say(c, 200, "80000000", "Success") },
		}.say)
		return true
	})
	h.Leave = func(c *sinktest.Call) bool { return d.leaves(sinktest.PushedTo(c)) }
	return sinkEnd{
		settings: fmt.Sprintf(`type: hms, url: %q, ca_file: %q, service_account_file: %q, token_url: %q`, h.URL, h.CAFile, h.KeyFile, h.TokenURL()),
		dress: func(j *job) {
			j.payload = []byte(`{"payload":{"notification":{"title":"hello"}},"target":{"token":["` + j.id + `"]}}`)
		},
	}
}

func startAPNsEnd(t *testing.T, d *destination) sinkEnd {
	var a *sinktest.APNs
	name := func(device string) string { b, _ := hex.DecodeString(device); return string(b) }
	a = sinktest.StartAPNs(t, func(c *sinktest.Call, device string, _ int) bool {
		d.serve(c, name(device), says{
			fails:        func() { a.Fail(c, 500, "InternalServerError") },
			gone:         func() { a.Gone(c, time.Unix(1_700_000_000, 0)) },
			refuses:      func() { a.Fail(c, 400, "BadDeviceToken") },
			throttlesAll: func() { a.Fail(c, 503, "ServiceUnavailable", "Retry-After", "1") },
			throttlesIt:  func() { a.Fail(c, 429, "TooManyRequests", "Retry-After", "1") },
			distrusts:    func() { a.Fail(c, 403, "ExpiredProviderToken") },
			faultless:    func() { c.Answer(200, "Apns-Id", c.Header.Get("Apns-Id")) },
		}.say)
		return true
	})
	a.Leave = func(c *sinktest.Call) bool { return d.leaves(name(sinktest.DeviceOf(c))) }
	return sinkEnd{
		settings: fmt.Sprintf(`type: apns, url: %q, ca_file: %q, auth_key_file: %q, key_id: KEY1, team_id: TEAM1, topic: com.example.app`,
			a.URL, a.CAFile, a.KeyFile),
		dress: func(j *job) {
			j.payload = []byte(`{"aps":{"alert":"hello"}}`)
			j.headers = append(j.headers, kafka.Header{Key: "device-token", Value: []byte(hex.EncodeToString([]byte(j.id)))})
		},
	}
}

// startKafkaEnd starts brokers. The records of a partition in a request are treated as the worst of them is to be.
func startKafkaEnd(t *testing.T, d *destination) sinkEnd {
	codes := map[fault]int16{
		loses:     20, // NOT_ENOUGH_REPLICAS_AFTER_APPEND
		fails:     19, // NOT_ENOUGH_REPLICAS
		distrusts: 29, // TOPIC_AUTHORIZATION_FAILED
		refuses:   10, // MESSAGE_TOO_LARGE
	}
	b := sinktest.StartBroker(t, sinktest.BrokerOptions{
		Topic: "orders.paced", Partitions: 3, Brokers: 3,
		Treat: func(_ int32, records []sinktest.Written) sinktest.Treatment {
			ids := map[int32][]string{}
			for _, w := range records {
				ids[w.Partition] = append(ids[w.Partition], w.ID)
			}
			how := sinktest.Treatment{Codes: map[int32]int16{}}
			for p, does := range d.batch(ids, []fault{faultless, loses, fails, distrusts, refuses, resets, deaf}) {
				how.Reset, how.Hang = how.Reset || does == resets, how.Hang || does == deaf
				if code, fails := codes[does]; fails {
					how.Codes[p] = code
				}
			}
			return how
		},
	})
	return sinkEnd{
		settings: fmt.Sprintf(`type: kafka, brokers: [%q], topic: orders.paced, tls: true, ca_file: %q`, b.Addr, b.CAFile),
		dress:    func(*job) {},
		taken:    func() int { return int(b.Kept("orders.paced")) },
	}
}

func startWebPushEnd(t *testing.T, d *destination) sinkEnd {
	w := sinktest.StartWebPush(t, func(c *sinktest.Call, recipient string, _ int) bool {
		d.serve(c, recipient, says{
			fails:         func() { c.Answer(http.StatusInternalServerError) },
			gone:          func() { c.Answer(http.StatusGone) },
			refuses:       func() { c.Answer(http.StatusRequestEntityTooLarge) },
			throttlesHost: func() { c.Answer(http.StatusTooManyRequests, "Retry-After", "1") },
			distrusts:     func() { c.JSON(http.StatusForbidden, `{"reason":"ExpiredJwtToken"}`) },
			faultless:     func() { c.Answer(http.StatusCreated) },
		}.say)
		return true
	})
	w.Leave = func(c *sinktest.Call) bool { return d.leaves(sinktest.SubscriberOf(c)) }
	return sinkEnd{
		settings: fmt.Sprintf(`type: webpush, ca_file: %q, vapid_key: %q, subject: "mailto:ops@example.com", guard: {ports: [%d], allow: [127.0.0.1]}`,
			w.CAFile, w.Key, w.Port),
		dress: func(j *job) {
			j.headers = append(j.headers, header("subscription", w.Subscription(j.id)))
		},
	}
}

func startTelegramEnd(t *testing.T, d *destination) sinkEnd {
	var g *sinktest.Telegram
	g = sinktest.StartTelegram(t, func(c *sinktest.Call, chat string, _ int) bool {
		d.serve(c, chat, says{
			fails:       func() { g.Fail(c, 500, "Internal Server Error", "") },
			gone:        func() { g.Fail(c, 403, "Forbidden: bot was blocked by the user", "") },
			refuses:     func() { g.Fail(c, 400, "Bad Request: message is too long", "") },
			throttlesIt: func() { g.Fail(c, 429, "Too Many Requests: retry after 1", `{"retry_after":1}`) },
			distrusts:   func() { g.Fail(c, 401, "Unauthorized", "") },
			faultless:   func() { c.JSON(200, `{"ok":true,"result":{"message_id":7}}`) },
		}.say)
		return true
	})
	g.Leave = func(c *sinktest.Call) bool { return d.leaves(sinktest.ChatOf(c)) }
	return sinkEnd{
		settings: fmt.Sprintf(`type: telegram, url: %q, ca_file: %q, token: %q`, g.URL, g.CAFile, g.Token),
		dress:    func(j *job) { j.payload = []byte(`{"chat_id":"` + j.id + `","text":"hello"}`) },
	}
}

// startSMTPEnd starts a mail server. Its answer about a recipient comes before the message.
func startSMTPEnd(t *testing.T, d *destination) sinkEnd {
	const domain = "@example.org"
	s := sinktest.StartSMTP(t, sinktest.SMTPOptions{
		Sender: func(string, int) error {
			if d.doubts() {
				return sinktest.Refusal(530, [3]int{5, 7, 0}, "authentication required")
			}
			return nil
		},
		Treat: func(recipient string, _ int) (how sinktest.MailTreatment) {
			v := d.decides(strings.TrimSuffix(recipient, domain), 0, single)
			how.Read = func() {
				d.does(v)
				d.over(v, !how.Hang && !how.Reset)
			}
			switch v.does {
			case fails, alwaysFails:
				how.Recipient = sinktest.Refusal(451, [3]int{4, 4, 1}, "try again later")
			case gone:
				how.Recipient = sinktest.Refusal(550, [3]int{5, 1, 1}, "no such user here")
			case refuses:
				how.Message = sinktest.Refusal(554, [3]int{5, 6, 0}, "this cannot be read")
			case throttlesAll:
				how.Recipient = sinktest.Refusal(452, [3]int{4, 3, 1}, "no space left")
			case throttlesIt:
				how.Recipient = sinktest.Refusal(450, [3]int{4, 7, 1}, "greylisted")
			case distrusts:
				how.Recipient = sinktest.Refusal(530, [3]int{5, 7, 0}, "authentication required")
			case loses, deaf:
				how.Hang = true
			case resets:
				how.Reset = true
			}
			if how.Recipient != nil {
				how.Read()
			}
			return how
		},
	})
	return sinkEnd{
		settings: fmt.Sprintf(`type: smtp, addr: %q, ca_file: %q, username: %s, password: %s, from: "news@example.com", subject: Hello, text: Hello,
      retry_after: 1s, max_retry_after: 1s`, s.Addr, s.CAFile, sinktest.MailUser, sinktest.MailPassword),
		dress: func(j *job) {
			j.headers = append(j.headers, header("to", j.id+domain))
		},
	}
}
