package smtp

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func TestClassify(t *testing.T) {
	const wait = 7 * time.Minute
	for _, tt := range []struct {
		at    stage
		said  string
		byJob bool
		want  delivery.ResultClass
		wait  time.Duration
	}{
		{at: ending, said: "250 2.0.0 Ok: queued as 4F7AB12", want: delivery.Delivered},
		{at: ending, said: "251 forwarded", want: delivery.Delivered},
		// Before there is a message.
		{at: connecting, said: "421 4.7.0 too many connections", want: delivery.Throttled, wait: busyWait},
		{at: connecting, said: "450 busy", want: delivery.Throttled, wait: busyWait},
		{at: connecting, said: "554 5.7.1 your address is blocked", want: delivery.Misconfigured},
		{at: connecting, said: "521 no mail here", want: delivery.Misconfigured},
		{at: securing, said: "454 4.7.0 no TLS now", want: delivery.Throttled, wait: busyWait},
		{at: securing, said: "501 no", want: delivery.Misconfigured},
		{at: authenticating, said: "535 5.7.8 wrong password", want: delivery.Misconfigured},
		{at: authenticating, said: "334 what", want: delivery.Misconfigured},
		{at: authenticating, said: "454 4.7.0 not now", want: delivery.Throttled, wait: busyWait},
		// Credentials, at any stage.
		{at: announcing, said: "530 5.7.0 log in", byJob: true, want: delivery.Misconfigured},
		{at: addressing, said: "530 log in", want: delivery.Misconfigured},
		{at: ending, said: "550 5.7.8 no", want: delivery.Misconfigured},
		// The sender.
		{at: announcing, said: "450 4.7.1 too much mail", want: delivery.Throttled, wait: busyWait},
		{at: announcing, said: "450 4.1.8 domain of the sender not found", want: delivery.Temporary, wait: wait},
		{at: announcing, said: "553 5.7.1 not your address", want: delivery.Misconfigured},
		{at: announcing, said: "553 5.7.1 not your address", byJob: true, want: delivery.Permanent},
		{at: announcing, said: "501 5.1.7 bad address", byJob: true, want: delivery.Permanent},
		{at: announcing, said: "552 5.3.4 too large", want: delivery.Permanent},
		{at: announcing, said: "550 5.6.7 needs SMTPUTF8", want: delivery.Permanent},
		{at: announcing, said: "555 unknown parameter", byJob: true, want: delivery.Misconfigured},
		// The recipient.
		{at: addressing, said: "550 5.1.1 no such user", want: delivery.Rejected},
		{at: addressing, said: "550 5.1.10 the domain takes no mail", want: delivery.Rejected},
		{at: addressing, said: "554 5.2.1 disabled", want: delivery.Rejected},
		{at: addressing, said: "550 5.4.1 access denied", want: delivery.Rejected},
		{at: addressing, said: "551 not here", want: delivery.Rejected},
		{at: addressing, said: "556 domain takes no mail", want: delivery.Rejected},
		{at: addressing, said: "550 relay not permitted", want: delivery.Permanent}, // which Exim says so: not the recipient's fault
		{at: addressing, said: "554 5.7.1 relay access denied", want: delivery.Permanent},
		{at: addressing, said: "504 5.5.2 need a full name", want: delivery.Permanent},
		{at: addressing, said: "503 5.5.1 MAIL first", want: delivery.Misconfigured},
		{at: addressing, said: "452 4.2.2 mailbox full", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "450 4.2.0 greylisted", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "451 try later", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "450 4.7.1 greylisted", want: delivery.Temporary, wait: wait},
		{at: addressing, said: "452 4.5.3 too many recipients", want: delivery.Throttled, wait: busyWait},
		{at: addressing, said: "450 4.3.2 overloaded", want: delivery.Throttled, wait: busyWait},
		{at: addressing, said: "421 4.7.0 bye", want: delivery.Throttled, wait: busyWait},
		// The message.
		{at: beginning, said: "503 5.5.1 no recipients", want: delivery.Misconfigured},
		{at: ending, said: "554 5.7.1 spam", want: delivery.Permanent},
		{at: ending, said: "550 5.1.1 no such user", want: delivery.Rejected},
		{at: ending, said: "552 too large", want: delivery.Permanent},
		{at: ending, said: "454 Throttling failure: Maximum sending rate exceeded.", want: delivery.Throttled, wait: busyWait},
		{at: ending, said: "432 4.3.2 concurrent connections exceeded", want: delivery.Throttled, wait: busyWait},
		{at: ending, said: "452 4.3.1 no space", want: delivery.Throttled, wait: busyWait},
		{at: ending, said: "451 4.7.1 try again later", want: delivery.Temporary, wait: wait},
		{at: ending, said: "451 4.4.1 no answer behind", want: delivery.Temporary, wait: wait},
		{at: ending, said: "354 what", want: delivery.Temporary},
	} {
		code, text, _ := strings.Cut(tt.said, " ")
		n, _ := strconv.Atoi(code)
		res := classify(tt.at, parseReply(n, text), tt.byJob, wait)
		if res.Class != tt.want || res.Scope != delivery.ScopeSink || res.RetryAfter != tt.wait {
			t.Errorf("stage %d, %s (%t): %+v", tt.at, tt.said, tt.byJob, res)
		}
	}
}

func TestReplies(t *testing.T) {
	for _, tt := range []struct{ text, enhanced, rest string }{
		{"5.1.1 no such user", "5.1.1", "no such user"},
		{"5.1.1 <a@b>: no\n5.1.1 such user", "5.1.1", "<a@b>: no such user"},
		{"no such user", "", "no such user"},
		{"5.1 x", "", "5.1 x"},
		{"4.7.28", "4.7.28", ""},
		{"12.1.1 x", "", "12.1.1 x"},
	} {
		if r := parseReply(550, tt.text); r.enhanced != tt.enhanced || r.text != tt.rest {
			t.Errorf("%q: %+v", tt.text, r)
		}
	}
	for text, want := range map[string]string{
		"Ok: queued as 4F7AB12": "4F7AB12", "OK id=1sABCd-0001Xy-2Z": "1sABCd-0001Xy-2Z", "Ok 0102018e-5b3a-000000": "0102018e-5b3a-000000",
		"Message accepted": "", "": "", "Ok: queued as <a@b>": "",
	} {
		if got := queueID(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
