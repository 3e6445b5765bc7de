package sink_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// set returns what sets fields of a configuration, names and values in turn.
func set(settings ...any) func(sink.Config) {
	return func(c sink.Config) {
		for i := 0; i < len(settings); i += 2 {
			v := reflect.ValueOf(c).Elem()
			for name := range strings.SplitSeq(settings[i].(string), ".") {
				v = v.FieldByName(name)
			}
			v.Set(reflect.ValueOf(settings[i+1]))
		}
	}
}

// problems are changes of settings that are good. Each makes one problem, which begins with its key.
var problems = map[string]map[string]func(sink.Config){
	"apns": {
		"url: must begin with htt": set("URL", "http://a"),
		"auth_key_file: required":  set("AuthKeyFile", ""),
		"cert_file: goes not":      set("CertFile", "x", "KeyFile", "y"),
		"cert_file: goes together": set("AuthKeyFile", "", "CertFile", "x"),
		"key_id: required":         set("KeyID", ""),
		"topic: required":          set("Topic", ""),
		"token: ":                  set("Token", "{{ .Nothing"),
		"push_type: unknown":       set("PushType", "x"),
		"priority: unknown":        set("Priority", "7"),
	},
	"fcm": {
		"url: must begin":                set("URL", "ftp://x"),
		"service_account_file: required": set("KeyFile", ""),
		"bearer: goes not":               set("Bearer", "x"),
		"project: required with":         set("KeyFile", "", "Bearer", "opensesame"),
		"project: not the id":            set("Project", "a/b"),
	},
	"hms": {
		"service_account_file: required": set("KeyFile", ""),
		"client_id: goes not":            set("ClientSecret", "opensesame"),
		"client_id: goes together":       set("KeyFile", "", "ClientSecret", "opensesame"),
		"project: required":              set("KeyFile", "", "ClientID", "1", "ClientSecret", "opensesame"),
		"project: not the id":            set("Project", "a/b"),
		"push_type: not a type":          set("PushType", "alert"),
		"token_url: must begin":          set("TokenURL", "http://a"),
	},
	"kafka": {
		"brokers: required":         set("Brokers", []string(nil)),
		"topic: required":           set("Topic", ""),
		"key: ":                     set("Key", "{{ .Header"),
		"linger: 2s is more":        set("Linger", 2*time.Second),
		"cert_file: goes together":  set("CertFile", "x"),
		"tls: ca_file, cert_file":   set("TLS", false),
		"sasl_mechanism: required":  set("Username", "x", "Password", "opensesame"),
		"username: required togeth": set("SASLMechanism", "plain", "Username", "x"),
	},
	"rustore": {
		"bearer: required":  set("Bearer", ""),
		"project: required": set("Project", ""),
	},
	"smev": {
		"node_id: use at most":   set("NodeID", strings.Repeat("n", 51)),
		"attachments: line 1":    set("Attachments", "{{"),
		"it_system: required":    set("ITSystem", "a b"),
		"poll.max: 1s is less":   set("Poll.Max", time.Second),
		"cert_file: goes togeth": set("CertFile", "x"),
	},
	"smev direct": {
		"signer.url: must begin": set("Signer.URL", "ftp://x"),
		"signer.url: required":   set("Signer.Bearer", "opensesame"),
		"collect.types: item 2":  set("Collect.Types", []string{"{urn:a}B", "B"}),
	},
	"smtp": {
		"tls: ca_file, cert_file and":        set("TLS", "none", "Username", "", "Password", ""),
		"cert_file: goes together":           set("CertFile", "x"),
		"username: goes together":            set("Password", ""),
		"username: would be sent":            set("TLS", "none", "CAFile", ""),
		"username: required with":            set("Auth", "login", "Username", "", "Password", ""),
		"hello: not the name":                set("Hello", "x y"),
		"to: required":                       set("To", ""),
		"from: required":                     set("From", ""),
		"from: not an address":               set("From", "news"),
		"envelope_from: line 1: unclosed":    set("EnvelopeFrom", "{{ .ID"),
		"subject: required":                  set("Subject", ""),
		"subject: from, reply_to and":        set("Subject", "", "Text", ""),
		"text: required, or html":            set("Text", ""),
		"headers.bcc: written by pacer":      set("Headers", map[string]string{"bcc": "x"}),
		"headers.Content-Type: written":      set("Headers", map[string]string{"Content-Type": "x"}),
		"headers.X Y: not a name":            set("Headers", map[string]string{"X Y": "x"}),
		"headers.X: line 1: unclosed action": set("Headers", map[string]string{"X": "{{"}),
	},
	"telegram": {
		"url: must begin":      set("URL", "ftp://x"),
		"url: has a user":      set("URL", "https://a:opensesame@x"),
		"token: required":      set("Token", ""),
		"token: not the token": set("Token", "hunter22"),
		"method: not a method": set("Method", "send/../x"),
	},
	"webpush": {
		"vapid_key: required":    set("Key", ""),
		"vapid_key: no private":  set("Key", "opensesame"),
		"subject: required":      set("Subject", "ops@example.com"),
		"subscription: required": set("Subscription", ""),
		"subscription: line 1":   set("Subscription", "{{"),
		"body: line 1":           set("Body", "{{ x }}"),
		"urgency: unknown":       set("Urgency", "highest"),
		"topic: not a topic":     set("Topic", "a b"),
		"proxy: must begin":      set("Proxy", "ftp://opensesame"),
		"guard.ports: required":  set("Guard.Ports", []int(nil)),
	},
}

// TestProblems: what is wrong with settings is named, and no secret is told.
func TestProblems(t *testing.T) {
	for kind, changes := range problems {
		t.Run(kind, func(t *testing.T) {
			good := reflect.ValueOf(plays[kind].start(t, func(string, int) act { return takes }).config).Elem()
			sinktest.Problems(t, func() sink.Config {
				c := reflect.New(good.Type())
				c.Elem().Set(good)
				return c.Interface().(sink.Config)
			}, changes)
		})
	}
}
