package apns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/google/uuid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a sink for the stand-in until the test ends.
func open(t *testing.T, a *sinktest.APNs, change func(*Config)) *httpcall.Sink[parts] {
	t.Helper()
	c := Default()
	c.URL, c.CAFile, c.AuthKeyFile, c.KeyID, c.TeamID, c.Topic, c.Timeout = a.URL, a.CAFile, a.KeyFile, "KEY1", "TEAM1", "com.example.app", 20*time.Second
	if change != nil {
		change(c)
	}
	s, err := New(c, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, s, err)
}

func job(device string) *delivery.Job {
	return &delivery.Job{
		ID: "job of " + device, Campaign: "c", Payload: []byte(`{"aps":{"alert":"hi"}}`),
		Meta: delivery.Meta{Headers: []delivery.Header{{Key: "device-token", Value: []byte(device)}, {Key: "kind", Value: []byte("background")}}},
	}
}

// many delivers n jobs at once, and returns how many had each class.
func many(t *testing.T, s *httpcall.Sink[parts], n int) map[delivery.ResultClass]int {
	t.Helper()
	var jobs []*delivery.Job
	for i := range n {
		jobs = append(jobs, job(fmt.Sprintf("%04x", i+1)))
	}
	got := map[delivery.ResultClass]int{}
	for _, res := range sinktest.All(t, s, jobs) {
		got[res.Class]++
	}
	return got
}

// TestHeaders: what a request says is what the settings and the job say, and its id is always the same.
func TestHeaders(t *testing.T) {
	t.Parallel()
	a := sinktest.StartAPNs(t, nil)
	s := open(t, a, func(c *Config) {
		c.PushType, c.Priority, c.CollapseID, c.StoreFor = `{{ .Header "kind" }}`, "5", "{{ .Campaign }}", time.Hour
	})
	j := job("ab")
	j.ExpiresAt = time.Unix(2_000_000_000, 0)
	for range 2 {
		if res := s.Deliver(t.Context(), j, nil); res.Class != delivery.Delivered || res.Provider.MessageID != uuid.NewSHA1(space, []byte(j.ID)).String() {
			t.Fatalf("%+v", res)
		}
	}
	for _, change := range []func(*Config){nil, func(c *Config) { c.PushType = "background" }} {
		sinktest.Deliver(t, open(t, a, change), j, delivery.Delivered)
	}
	got := a.Headers()
	for name, want := range map[string]string{
		"apns-topic": "com.example.app", "apns-push-type": "background", "apns-priority": "5", "apns-collapse-id": "c", "apns-id": uuid.NewSHA1(space, []byte(j.ID)).String(),
	} {
		if got[0][name] != want || got[1][name] != want {
			t.Errorf("%s: %q, want %q", name, got[0][name], want)
		}
	}
	if got[0]["apns-expiration"] == "2000000000" || got[2]["apns-expiration"] != "2000000000" || got[2]["apns-priority"] != "" || got[3]["apns-priority"] != "5" {
		t.Errorf("%v", got)
	}
}

// TestOneToken: sinks that know nothing of each other send the same token.
func TestOneToken(t *testing.T) {
	t.Parallel()
	a := sinktest.StartAPNs(t, nil)
	for range 3 {
		if got := many(t, open(t, a, nil), 20); got[delivery.Delivered] != 20 {
			t.Errorf("%v", got)
		}
	}
	if n := a.Tokens(); n > 2 { // two at the turn
		t.Errorf("%d tokens", n)
	}
}

// TestConnectionsThatAreMadeLate: a connection that is being made when the settings change ends with its request.
func TestConnectionsThatAreMadeLate(t *testing.T) {
	t.Parallel()
	a := sinktest.StartAPNs(t, nil)
	s := open(t, a, nil)
	p := s.Now()
	closed := make(chan struct{})
	dial := sinktest.Watch(p.Transport.DialContext, sync.OnceFunc(func() { close(closed) }))
	p.Transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		p.Close() // as Reread does when it has made others
		return dial(ctx, network, addr)
	}
	sinktest.Deliver(t, s, job("ab"), delivery.Delivered)
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Error("the connection stays")
	}
}

// TestStreams: however few streams the service allows, lowers its limit to one and raises it again, no request is beyond the
// limit of its connection, and all are delivered.
func TestStreams(t *testing.T) {
	t.Parallel()
	var a *sinktest.APNs
	var n atomic.Int32
	a = sinktest.StartAPNs(t, func(c *sinktest.Call, _ string, _ int) bool {
		switch n.Add(1) % 50 {
		case 10:
			a.SetLimit(c, 1)
		case 40:
			a.SetLimit(c, 100)
		}
		return false
	})
	s := open(t, a, nil)
	if got := many(t, s, 300); got[delivery.Delivered] != 300 {
		t.Errorf("%v", got)
	}
	if a.Excess() != 0 || a.Connections() > s.Now().config.Connections || s.Repeats.Load() != 0 {
		t.Errorf("%d requests beyond the limit, %d connections, %d resent", a.Excess(), a.Connections(), s.Repeats.Load())
	}
	for i := range 300 {
		if n := a.Received(fmt.Sprintf("%04x", i+1)); n != 1 {
			t.Errorf("%d was received %d times", i, n)
		}
	}
}

// TestStreamLimit: when the service has raised its limit again, several requests are open on one connection.
func TestStreamLimit(t *testing.T) {
	t.Parallel()
	var a *sinktest.APNs
	var open5 atomic.Int32
	several := make(chan struct{})
	a = sinktest.StartAPNs(t, func(c *sinktest.Call, device string, _ int) bool {
		if limit := map[string]uint32{"aa": 1, "bb": 100}[device]; limit > 0 {
			a.SetLimit(c, limit) // which the answer comes after
			return false
		}
		if open5.Add(1) == 5 {
			close(several)
		}
		select {
		case <-several:
		case <-c.Gone():
		}
		return false
	})
	s := open(t, a, func(c *Config) { c.Connections = 1 })
	for _, device := range []string{"aa", "bb"} {
		sinktest.Deliver(t, s, job(device), delivery.Delivered)
	}
	if got := many(t, s, 5); got[delivery.Delivered] != 5 || a.Connections() != 1 {
		t.Errorf("%v over %d connections", got, a.Connections())
	}
}

// TestGoAway: what the service has not processed is written to another connection, once, and the connections that have
// gone away are replaced.
func TestGoAway(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		treat func(c *sinktest.Call)
		want  delivery.ResultClass
		reads int
	}{
		"before the stream":           {func(c *sinktest.Call) { c.GoAway(false) }, delivery.Delivered, 2},
		"after it, and the answer":    {func(c *sinktest.Call) { c.GoAway(true); c.Answer(200) }, delivery.Delivered, 1},
		"after it, and no answer":     {func(c *sinktest.Call) { c.GoAway(true); c.Close() }, delivery.Temporary, 1},
		"a stream refused":            {func(c *sinktest.Call) { c.Refuse(7) }, delivery.Delivered, 2},
		"a stream reset by an error":  {func(c *sinktest.Call) { c.Refuse(2) }, delivery.Temporary, 1},
		"no answer, and a connection": {(*sinktest.Call).Reset, delivery.Temporary, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := sinktest.StartAPNs(t, func(c *sinktest.Call, device string, n int) bool {
				if device == "ff" && n == 1 {
					tt.treat(c)
				}
				return device == "ff" && n == 1
			})
			s := open(t, a, nil)
			sinktest.Deliver(t, s, job("aa"), delivery.Delivered)
			res := s.Deliver(t.Context(), job("ff"), nil)
			if res.Class != tt.want || a.Received("ff") != tt.reads || s.Repeats.Load() != uint64(tt.reads-1) {
				t.Errorf("%+v, read %d times, %d resent", res, a.Received("ff"), s.Repeats.Load())
			}
			if got := many(t, s, 20); got[delivery.Delivered] != 20 {
				t.Errorf("afterwards: %v", got)
			}
		})
	}
}

// TestNoFreeConnection: a request that was not sent says so, and not that there was no answer.
func TestNoFreeConnection(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	a := sinktest.StartAPNs(t, func(c *sinktest.Call, device string, _ int) bool {
		if device == "ff" {
			close(asked)
			c.Hang()
		}
		return device == "ff"
	})
	s := open(t, a, func(c *Config) { c.Connections, c.Timeout = 1, 3*time.Second })
	first := make(chan delivery.Result, 1)
	go func() { first <- s.Deliver(t.Context(), job("ff"), nil) }()
	<-asked
	res := s.Deliver(t.Context(), job("aa"), nil)
	if sent := res.Class != delivery.Unreachable || !strings.Contains(res.Detail, "all connections were in use"); sent && len(first) == 0 {
		t.Errorf("%+v", res)
	}
	if res := <-first; res.Class != delivery.Temporary {
		t.Errorf("%+v", res)
	}
}

// TestConnectionsThatEnd: some reasons end the use of their connection, and so do requests that get no answer.
func TestConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"IdleTimeout", "Shutdown", "TooManyProviderTokenUpdates", "silence"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			var a *sinktest.APNs
			a = sinktest.StartAPNs(t, func(c *sinktest.Call, _ string, _ int) bool {
				switch {
				case c.Connection > 1:
					return false
				case reason == "silence":
					c.Hang()
				default:
					a.Fail(c, 400, reason)
				}
				return true
			})
			s := open(t, a, func(c *Config) {
				c.Connections = 1
				if reason == "silence" {
					c.Timeout = time.Second
				}
			})
			want := delivery.Unreachable
			if reason == "silence" {
				want = delivery.Temporary
			}
			if res := s.Deliver(t.Context(), job("aa"), nil); res.Class != want {
				t.Errorf("%+v", res)
			}
			sinktest.Eventually(t, "healed", func() bool { return s.Deliver(t.Context(), job("aa"), nil).Class == delivery.Delivered })
			if a.Connections() < 2 {
				t.Error("it went on with the connection")
			}
		})
	}
}

// TestNotANotification: what cannot be sent is refused before, and nothing of it is told.
func TestNotANotification(t *testing.T) {
	t.Parallel()
	a := sinktest.StartAPNs(t, nil)
	s := open(t, a, func(c *Config) { c.CollapseID = `{{ .Header "kind" }}` })
	for device, kind := range map[string]string{"": "x", "hunter22": "x", "../ab": "x", "ab": strings.Repeat("hunter22", 20), "abc": "hunter22\n"} {
		j := job(device)
		j.Headers[1].Value = []byte(kind)
		if res := s.Deliver(t.Context(), j, nil); res.Class != delivery.Permanent || strings.Contains(res.Detail, "hunter22") {
			t.Errorf("%q, %.10q: %+v", device, kind, res)
		}
	}
	if len(a.Seen()) != 0 {
		t.Error("something was sent")
	}
}

// TestNotAKey: the file is named, and nothing of its content.
func TestNotAKey(t *testing.T) {
	c := Default()
	c.AuthKeyFile, c.KeyID, c.TeamID, c.Topic = filepath.Join(t.TempDir(), "key"), "K", "T", "t"
	if err := os.WriteFile(c.AuthKeyFile, []byte("hunter22"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(c, base.Host{})
	if err == nil || !strings.HasPrefix(err.Error(), "auth_key_file: "+c.AuthKeyFile) || strings.Contains(err.Error(), "hunter22") {
		t.Error(err)
	}
}
