package sink_test

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/apns"
	"github.com/pacer/pacer/internal/sink/fcm"
	"github.com/pacer/pacer/internal/sink/hms"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/kafka"
	"github.com/pacer/pacer/internal/sink/rustore"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/smev"
	"github.com/pacer/pacer/internal/sink/smtp"
	"github.com/pacer/pacer/internal/sink/steps"
	"github.com/pacer/pacer/internal/sink/telegram"
	"github.com/pacer/pacer/internal/sink/webpush"
)

// plays are the kinds under test, each with its stand-in.
var plays = map[string]play{
	"apns":         apnsPlay,
	"fcm":          fcmPlay,
	"hms":          hmsPlay(false),
	"hms, secret":  hmsPlay(true),
	"http":         httpPlay(sinktest.Plain),
	"http, by TLS": httpPlay(sinktest.TLS),
	"http, by h2":  httpPlay(sinktest.HTTP2),
	"kafka":        kafkaPlay,
	"rustore":      rustorePlay,
	"smev":         smevPlay("rest"),
	"smev direct":  smevDirectPlay,
	"smev soap":    smevPlay("soap"),
	"smtp":         smtpPlay,
	"steps":        stepsPlay,
	"telegram":     telegramPlay,
	"webpush":      webpushPlay,
}

// jobOf is a job for a recipient, with headers, names and values in turn.
func jobOf(recipient, payload string, headers ...string) *delivery.Job {
	j := &delivery.Job{
		ID: "job of " + recipient, Campaign: "spring", Payload: []byte(payload), Reading: delivery.Reading{Published: delivery.ShortStampOf(time.Now())},
	}
	for i := 0; i+1 < len(headers); i += 2 {
		j.Headers = append(j.Headers, delivery.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return j
}

var apnsPlay = play{
	wrong: func(t *testing.T) changes {
		other := sinktest.StartAPNs(t, nil)
		return changes{"auth_key_file: HTTP 403 ": set("AuthKeyFile", other.KeyFile), "url: ": set("CAFile", other.CAFile)}
	},
	acts: []act{takes, rejects, refuses, refusesLate, fails, failsFor7s, throttlesIt, distrusts, hangs, resets, babbles, trickles, echoes},
	start: func(t *testing.T, treat func(string, int) act) stage {
		var a *sinktest.APNs
		fail := func(status int, reason string, header ...string) func(*sinktest.Call) {
			return func(c *sinktest.Call) { a.Fail(c, status, reason, header...) }
		}
		says := table{
			rejects:     func(c *sinktest.Call) { a.Gone(c, time.Unix(1_700_000_000, 0)) },
			refuses:     fail(400, "BadDeviceToken"),
			fails:       fail(500, "InternalServerError"),
			failsFor7s:  fail(503, "ServiceUnavailable", "Retry-After", "7"),
			throttlesIt: fail(429, "TooManyRequests", "Retry-After", "90"),
			distrusts:   fail(403, "InvalidProviderToken"),
		}
		a = sinktest.StartAPNs(t, func(c *sinktest.Call, device string, n int) bool {
			name, _ := hex.DecodeString(device)
			return says.treat(c, treat(string(name), n))
		})
		device := func(recipient string) string { return hex.EncodeToString([]byte(recipient)) }
		c := apns.Default()
		c.URL, c.CAFile, c.AuthKeyFile, c.KeyID, c.TeamID, c.Topic = a.URL, a.CAFile, a.KeyFile, "KEY1", "TEAM1", "com.example.app"
		return stage{
			config: c, received: func(recipient string) int { return a.Received(device(recipient)) }, secrets: []string{"eyJ"},
			job: func(recipient string) *delivery.Job {
				return jobOf(recipient, `{"aps":{"alert":"`+recipient+`"}}`, "device-token", device(recipient))
			},
		}
	},
}

func jobOfFCM(recipient string) *delivery.Job {
	return jobOf(recipient, `{"token":"`+recipient+`","data":{"a":"b"}}`)
}

var actsOfFCM = []act{takes, rejects, refuses, refusesLate, fails, failsFor7s, throttles, distrusts, hangs, resets, babbles, trickles, mumbles, echoes}

type changes = map[string]func(sink.Config)

// ofFCM plays Firebase Cloud Messaging, and RuStore, which speaks its language but has no codes of its own. The configuration has a secret.
func ofFCM(acts []act, coded bool, wrong func(*testing.T) changes, config func(*sinktest.FCM) (c sink.Config, secret string)) play {
	return play{acts: acts, wrong: wrong, start: func(t *testing.T, treat func(string, int) act) stage {
		var f *sinktest.FCM
		fail := func(status int, said, code string, header ...string) func(*sinktest.Call) {
			if !coded {
				code = ""
			}
			return func(c *sinktest.Call) { f.Fail(c, status, said, code, header...) }
		}
		says := table{
			rejects:     fail(404, "NOT_FOUND", "UNREGISTERED"),
			refuses:     fail(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
			fails:       fail(500, "INTERNAL", "INTERNAL"),
			failsFor7s:  fail(503, "UNAVAILABLE", "UNAVAILABLE", "Retry-After", "7"),
			throttles:   fail(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", "Retry-After", "90"),
			throttlesIt: func(c *sinktest.Call) { f.Throttle(c, "device:x", 90*time.Second) },
			distrusts:   fail(403, "PERMISSION_DENIED", ""),
		}
		f = sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, n int) bool {
			return says.treat(c, treat(recipient, n), `{"name":"projects/demo/messages/7","a":"`)
		})
		c, secret := config(f)
		return stage{config: c, received: f.Received, secrets: []string{secret}, job: jobOfFCM}
	}}
}

func wrongForFCM(t *testing.T) changes {
	return changes{"project: HTTP 404": set("Project", "another"), "service_account_file: ": set("KeyFile", sinktest.StartFCM(t, nil).KeyFile)}
}

var fcmPlay = ofFCM(append(actsOfFCM, throttlesIt), true, wrongForFCM, func(f *sinktest.FCM) (sink.Config, string) {
	c := fcm.Default()
	c.URL, c.CAFile, c.KeyFile = f.URL, f.CAFile, f.KeyFile
	return c, "ya29.token"
})

func wrongForRuStore(*testing.T) changes {
	return changes{"bearer: HTTP 401": set("Bearer", "opensesame")}
}

var rustorePlay = ofFCM(actsOfFCM, false, wrongForRuStore, func(f *sinktest.FCM) (sink.Config, string) {
	c := rustore.Default()
	c.URL, c.CAFile, c.Project, c.Bearer = f.URL, f.CAFile, f.Project, f.Give()
	return c, c.Bearer
})

// hmsPlay has the key of a service account, or the secret of an app.
func hmsPlay(bySecret bool) play {
	return play{
		wrong: func(*testing.T) changes {
			if bySecret {
				return changes{"token_url: HTTP 400 ": set("ClientSecret", "opensesame is not the secret")}
			}
			return changes{
				"project: HTTP 404":      set("Project", "another"),
				"service_account_file: ": set("TokenURL", "https://elsewhere.example"), // whom the token is for
			}
		},
		acts: []act{takes, rejects, refuses, fails, throttles, distrusts, hangs, resets, babbles, trickles, mumbles, echoes},
		start: func(t *testing.T, treat func(string, int) act) stage {
			var h *sinktest.HMS
			say := func(status int, code, msg string) func(*sinktest.Call) {
				return func(c *sinktest.Call) { h.Say(c, status, code, msg) }
			}
			says := table{
				rejects:   say(200, "80300007", `{"failure":1,"illegalTokens":{"invalidToken":["x"]}}`),
				refuses:   say(400, "80100003", "Illegal payload, badge addNum value ranges from 1 to 99"),
				fails:     say(500, "81000001", "Internal error"),
				throttles: answer(503, "Retry-After", "90"),
				distrusts: say(200, "80300002", "No permission to send message to these tmIDs"),
			}
			h = sinktest.StartHMS(t, func(c *sinktest.Call, recipient string, n int) bool {
				return says.treat(c, treat(recipient, n), `{"code":"80000000","msg":"Success","requestId":"r-1"`)
			})
			c := hms.Default()
			c.URL, c.CAFile, c.TokenURL = h.URL, h.CAFile, h.TokenURL()
			if c.KeyFile = h.KeyFile; bySecret {
				c.KeyFile, c.Project, c.ClientID, c.ClientSecret = "", h.Project, "100", h.Secret
			}
			return stage{
				config: c, received: h.Received, secrets: []string{"eyJ", "CgB6e3x9", h.Secret},
				job: func(recipient string) *delivery.Job {
					return jobOf(recipient, `{"payload":{"notification":{"title":"hello"}},"target":{"token":["`+recipient+`"]}}`)
				},
			}
		},
	}
}

// ofHTTP is what destinations of no protocol but HTTP say.
var ofHTTP = table{
	rejects:     func(c *sinktest.Call) { c.JSON(400, `{"code":"GONE"}`) }, // by a rule
	refuses:     answer(422),
	fails:       answer(500),
	failsFor7s:  answer(500, "Retry-After", "7"),
	throttles:   answer(429, "Retry-After", "90"),
	throttlesIt: func(c *sinktest.Call) { c.JSON(429, `{"code":"RATE"}`, "Retry-After", "90") }, // by a rule
	distrusts:   answer(401),
}

func rulesOfHTTP() map[string]string {
	return map[string]string{"rejected": `body?.code == "GONE"`, "throttled recipient": `body?.code == "RATE"`}
}

// httpPlay has secrets wherever a configuration may have them.
func httpPlay(p sinktest.Protocol) play {
	return play{
		acts: []act{takes, rejects, refuses, fails, failsFor7s, throttles, throttlesIt, distrusts, hangs, resets, babbles, echoes},
		start: func(t *testing.T, treat func(string, int) act) stage {
			received := newTally()
			srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) {
				recipient := strings.TrimPrefix(string(c.Payload), "hello ")
				if !ofHTTP.treat(c, treat(recipient, received.add(recipient))) {
					c.Answer(200)
				}
			})
			c := http.Default()
			c.URL, c.CAFile, c.Rules = strings.Replace(srv.URL, "://", "://me:hunter22%25%2Fx@", 1)+"?token=swordfish&v=1", srv.CAFile, rulesOfHTTP()
			c.Headers = map[string]string{"X-Key": "opensesame", "X-Token": "Bearer sk_live_0123456789", "X-Version": "1"}
			return stage{
				config: c, received: received.of, secrets: []string{"hunter22", "swordfish", "opensesame", "sk_live_0123456789"},
				job: func(recipient string) *delivery.Job { return jobOf(recipient, "hello "+recipient) },
			}
		},
	}
}

// stepsPlay is a request of one step, which has to do what a request of an http sink does.
var stepsPlay = play{
	setting: "steps.0.url: cannot connect: ",
	acts:    []act{takes, rejects, refuses, fails, failsFor7s, throttles, throttlesIt, distrusts, hangs, resets, babbles, echoes},
	divert:  func(c sink.Config, addr string) { c.(*steps.Config).Steps[0].URL = "https://" + addr + "/new" },
	start: func(t *testing.T, treat func(string, int) act) stage {
		g := sinktest.StartRegistry(t, 0, func(c *sinktest.Call, _, key string, n int) bool { return ofHTTP.treat(c, treat(key, n)) })
		c := steps.Default()
		c.CAFile, c.Bearer = g.CAFile, "t0p-s3cret"
		c.Steps = []steps.Step{{ID: "new", URL: g.URL + "/new?key={{ .JSON.to }}", Rules: rulesOfHTTP()}}
		return stage{
			config: c, received: func(name string) int { return g.Calls("new", name) }, secrets: []string{"t0p-s3cret"},
			job: func(recipient string) *delivery.Job { return jobOf(recipient, `{"to":"`+recipient+`"}`) },
		}
	},
}

var kafkaPlay = play{
	setting: "brokers: ",
	acts:    []act{takes, refuses, fails, distrusts, hangs, resets},
	longest: 15 * time.Second,
	divert:  func(c sink.Config, addr string) { c.(*kafka.Config).Brokers = []string{addr} },
	start: func(t *testing.T, treat func(string, int) act) stage {
		counts := newTally()
		how := map[act]sinktest.Treatment{
			refuses:   {Code: 10}, // MESSAGE_TOO_LARGE
			fails:     {Code: 19}, // NOT_ENOUGH_REPLICAS
			distrusts: {Code: 29}, // TOPIC_AUTHORIZATION_FAILED
			hangs:     {Hang: true},
			resets:    {Reset: true},
		}
		b := sinktest.StartBroker(t, sinktest.BrokerOptions{
			Topic: "orders.paced", Partitions: 1,
			Treat: func(_ int32, records []sinktest.Written) (all sinktest.Treatment) {
				for _, w := range records {
					recipient := strings.TrimPrefix(w.ID, "job of ")
					if one, ok := how[treat(recipient, counts.add(recipient))]; ok {
						all = one
					}
				}
				return all
			},
		})
		c := kafka.Default()
		c.Brokers, c.Topic, c.TLS, c.CAFile = []string{b.Addr}, "orders.paced", true, b.CAFile
		return stage{config: c, received: counts.of, job: func(recipient string) *delivery.Job { return jobOf(recipient, "hello "+recipient) }}
	},
}

// smevJob is a job whose payload names its recipient, whom recipientOf finds in what arrives.
func smevJob(recipient string) *delivery.Job {
	return jobOf(recipient, `<q:Ask xmlns:q="urn://example/1.0">`+recipient+`</q:Ask>`)
}

func recipientOf(document string) string {
	_, rest, _ := strings.Cut(document, ">")
	name, _, _ := strings.Cut(rest, "<")
	return name
}

var smevActs = []act{takes, refuses, fails, failsFor7s, throttles, distrusts, hangs, resets, babbles, trickles, mumbles, echoes}

func smevPlay(protocol string) play {
	return play{
		acts: smevActs, many: 25, // for each protocol
		wrong: func(*testing.T) changes {
			return changes{"it_system: ": set("ITSystem", "another")}
		},
		start: func(t *testing.T, treat func(string, int) act) stage {
			received := newTally()
			var a *sinktest.Adapter
			a = sinktest.StartAdapter(t, sinktest.AdapterOptions{Treat: func(c *sinktest.Call, r sinktest.AdapterRequest, _ int) bool {
				recipient := recipientOf(r.Content)
				return table{
					refuses:    func(c *sinktest.Call) { a.Fault(c, "ValidationFault", "not by the schema: "+r.Content) },
					fails:      func(c *sinktest.Call) { a.Fault(c, "SystemFault", "no") },
					failsFor7s: answer(503, "Retry-After", "7"),
					throttles:  answer(429, "Retry-After", "90"),
					distrusts:  answer(403),
				}.treat(c, treat(recipient, received.add(recipient)), a.Accepted(c, r.ClientID))
			}})
			c := smev.Default()
			c.URL, c.CAFile, c.ITSystem, c.Wait, c.Protocol = a.URL, a.CAFile, a.ItSystem, "accepted", protocol
			return stage{config: c, received: received.of, job: smevJob}
		},
	}
}

var smevDirectPlay = play{
	acts: smevActs, many: 50,
	start: func(t *testing.T, treat func(string, int) act) stage {
		received := newTally()
		var s *sinktest.SMEV
		fault := func(name string) func(*sinktest.Call) { return func(c *sinktest.Call) { s.Fault(c, name) } }
		says := table{
			refuses:    fault("InvalidContent"),
			fails:      fault("SMEVFailure"),
			failsFor7s: answer(503, "Retry-After", "7"),
			throttles:  answer(429, "Retry-After", "90"),
			distrusts:  fault("SenderIsNotRegistered"),
		}
		s = sinktest.StartSMEV(t, sinktest.SMEVOptions{Treat: func(c *sinktest.Call, r sinktest.SMEVRequest, _ int) bool {
			recipient := recipientOf(r.Content)
			return says.treat(c, treat(recipient, received.add(recipient)), s.Accepted(r.MessageID))
		}})
		c := smev.Default()
		c.Mode, c.URL, c.CAFile, c.Responses = "direct", s.URL, s.CAFile, "pacer.smev.responses"
		return stage{config: c, received: received.of, job: smevJob, shown: []string{"urn:SendRequest", "<q:Ask", "requestIsQueued"}}
	},
}

var smtpPlay = play{
	setting: "addr: ",
	acts:    []act{takes, rejects, refuses, fails, throttles, distrusts, hangs, resets, echoes},
	waits:   map[act]time.Duration{throttles: 10 * time.Second}, // a server does not say how long
	divert:  func(c sink.Config, addr string) { c.(*smtp.Config).Addr = addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		const domain = "@example.org"
		how := map[act]sinktest.MailTreatment{
			rejects:   {Recipient: sinktest.Refusal(550, [3]int{5, 1, 1}, "no such user here")},
			refuses:   {Message: sinktest.Refusal(554, [3]int{5, 7, 1}, "this looks like spam")},
			fails:     {Recipient: sinktest.Refusal(451, [3]int{4, 4, 1}, "try again later")},
			throttles: {Message: sinktest.Refusal(452, [3]int{4, 3, 1}, "no space left")},
			distrusts: {Message: sinktest.Refusal(530, [3]int{5, 7, 0}, "authentication required")},
			echoes:    {Recipient: sinktest.Refusal(550, [3]int{5, 1, 1}, "no, "+sinktest.MailUser+" with "+sinktest.MailPassword)},
			hangs:     {Hang: true},
			resets:    {Reset: true},
		}
		s := sinktest.StartSMTP(t, sinktest.SMTPOptions{Treat: func(recipient string, n int) sinktest.MailTreatment {
			return how[treat(strings.TrimSuffix(recipient, domain), n)]
		}})
		c := smtp.Default()
		c.Addr, c.CAFile, c.Username, c.Password, c.RetryAfter = s.Addr, s.CAFile, sinktest.MailUser, sinktest.MailPassword, 90*time.Second
		c.From, c.Subject, c.Text = "news@example.com", "Hello", "{{ .Payload }}"
		return stage{
			config: c, received: func(recipient string) int { return s.Named(recipient + domain) }, secrets: []string{sinktest.MailPassword},
			job: func(recipient string) *delivery.Job {
				return jobOf(recipient, "hello "+recipient, "to", recipient+domain)
			},
		}
	},
}

var telegramPlay = play{
	wrong: func(*testing.T) changes {
		return changes{"token: code 401 Unauth": set("Token", "1:aaaaaaaaaaaaa")}
	},
	acts: []act{takes, rejects, refuses, fails, throttlesIt, distrusts, hangs, resets, babbles, trickles, mumbles, echoes},
	start: func(t *testing.T, treat func(string, int) act) stage {
		var g *sinktest.Telegram
		fail := func(status int, description, parameters string) func(*sinktest.Call) {
			return func(c *sinktest.Call) { g.Fail(c, status, description, parameters) }
		}
		says := table{
			rejects:     fail(403, "Forbidden: bot was blocked by the user", ""),
			refuses:     fail(400, "Bad Request: can't parse entities: Unsupported start tag \"hello\" at byte offset 0", ""),
			fails:       fail(500, "Internal Server Error", ""),
			throttlesIt: fail(429, "Too Many Requests: retry after 90", `{"retry_after":90}`),
			distrusts:   fail(401, "Unauthorized", ""),
		}
		g = sinktest.StartTelegram(t, func(c *sinktest.Call, chat string, n int) bool {
			return says.treat(c, treat(chat, n), `{"ok":true,"result":{"message_id":7,`)
		})
		c := telegram.Default()
		c.URL, c.CAFile, c.Token = g.URL, g.CAFile, g.Token
		return stage{
			config: c, received: g.Received, secrets: []string{g.Token, strings.SplitN(g.Token, ":", 2)[1]},
			shown: []string{"POST " + g.URL + "/bot***/sendMessage\n", `{"chat_id":"anna","text":"hello"}`, "HTTP 200", `"message_id":41`},
			job: func(recipient string) *delivery.Job {
				return jobOf(recipient, `{"chat_id":"`+recipient+`","text":"hello"}`)
			},
		}
	},
}

var webpushPlay = play{
	setting: "proxy: cannot connect: ", // endpoints come from jobs
	acts:    []act{takes, rejects, refuses, fails, failsFor7s, throttlesThere, distrustsThere, hangs, resets, babbles, trickles, echoes},
	divert:  func(c sink.Config, addr string) { c.(*webpush.Config).Proxy = "http://" + addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		says := table{
			rejects:        answer(410),
			refuses:        answer(413),
			fails:          answer(500),
			failsFor7s:     answer(502, "Retry-After", "7"),
			throttlesThere: answer(429, "Retry-After", "90"),
			distrustsThere: func(c *sinktest.Call) { c.JSON(403, `{"reason":"BadJwtToken"}`) },
		}
		w := sinktest.StartWebPush(t, func(c *sinktest.Call, recipient string, n int) bool { return says.treat(c, treat(recipient, n)) })
		c := webpush.Default()
		c.CAFile, c.Key, c.Subject = w.CAFile, w.Key, "mailto:ops@example.com"
		c.Guard.Ports, c.Guard.Allow = []int{w.Port}, []string{"127.0.0.1"}
		return stage{
			config: c, received: w.Received, secrets: []string{w.Key, "eyJ", "/push/", `\/push\/`},
			shown: []string{"POST " + w.URL + "/push/anna\n", "authorization: ***\n", "ttl: 86400\n", "bytes that are not text", "HTTP 201"},
			job: func(recipient string) *delivery.Job {
				return jobOf(recipient, "hello "+recipient, "subscription", w.Subscription(recipient))
			},
		}
	},
}
