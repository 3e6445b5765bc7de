package sink_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a sink made of functions.
type fake struct {
	base.Plain
	deliver func(context.Context, *delivery.Job) delivery.Result
	run     func(context.Context) error
	closing error // of Close
	closed  *int
}

func (f fake) Deliver(ctx context.Context, j *delivery.Job, _ *base.Exchange) delivery.Result {
	return f.deliver(ctx, j)
}

func (f fake) Run(ctx context.Context) error {
	if f.run == nil {
		<-ctx.Done()
		return nil
	}
	return f.run(ctx)
}

func (f fake) Check(context.Context) error { return nil }

func (f fake) Close() error {
	if f.closed != nil {
		*f.closed++
	}
	return f.closing
}

func answers(r delivery.Result) fake {
	return fake{deliver: func(context.Context, *delivery.Job) delivery.Result { return r }}
}

func newRouter(t *testing.T, opt sink.Options) (*sink.Router, *prometheus.Registry, *bytes.Buffer) {
	t.Helper()
	reg, out := prometheus.NewRegistry(), &bytes.Buffer{}
	opt.Registerer, opt.Logger = reg, slog.New(slog.NewTextHandler(out, nil))
	return sink.New(opt), reg, out
}

func entry(s sink.Sink) sink.Entry { return sink.Entry{Sink: s, MaxInFlight: 7} }

func TestResolve(t *testing.T) {
	ok := entry(answers(delivery.Result{}))
	sinks := map[string]sink.Entry{"a": ok, "b": ok}
	for _, tt := range []struct{ name, fallback, ask, want string }{
		{"the default", "b", "", "b"}, {"by name", "b", "a", "a"}, {"no default", "", "", ""}, {"unknown", "b", "c", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, _, _ := newRouter(t, sink.Options{Default: tt.fallback, Sinks: sinks})
			got, found := r.Resolve(tt.ask)
			if got != tt.want || found != (tt.want != "") {
				t.Errorf("Resolve(%q) = %q, %v", tt.ask, got, found)
			}
			if n, ok := r.Capacity(got); ok != found || found != (n == 7) {
				t.Errorf("Capacity(%q) = %d, %v", got, n, ok)
			}
		})
	}
}

// TestKeepRejected: only rejected jobs are kept, and only where the sink is set to.
func TestKeepRejected(t *testing.T) {
	for _, class := range delivery.ResultClasses {
		for _, keep := range []bool{false, true} {
			e := entry(answers(delivery.Result{Class: class}))
			e.KeepRejected = keep
			r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": e}})
			if res := r.Deliver(t.Context(), "a", &delivery.Job{}); res.Keep != (keep && class == delivery.Rejected) {
				t.Errorf("%s, set to keep %t: %+v", class, keep, res)
			}
		}
	}
}

// TestFaultsOfASink: jobs are tried again, and the log says it as an error.
func TestFaultsOfASink(t *testing.T) {
	for name, tt := range map[string]struct {
		sink fake
		to   string
	}{
		"panic":        {fake{deliver: func(context.Context, *delivery.Job) delivery.Result { panic("hunter22") }}, "a"},
		"no such kind": {answers(delivery.Result{Class: 200}), "a"},
		"no such sink": {answers(delivery.Result{}), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			r, reg, out := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": entry(tt.sink)}})
			res := r.Deliver(t.Context(), tt.to, &delivery.Job{ID: "j1", Campaign: "spring"})
			if res.Class != delivery.Temporary || res.Detail == "" || strings.Contains(res.Detail, "hunter22") {
				t.Errorf("result %+v", res)
			}
			if s := out.String(); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, "campaign=spring") ||
				tt.to == "a" && !strings.Contains(s, "job=j1") {
				t.Errorf("log %q", s)
			}
			if values(t, reg, "pacer_jobs_in_flight")["a"] != 0 {
				t.Error("the job still counts as in flight")
			}
		})
	}
}

// TestTextsAreBounded: a destination may say anything; the detail and each of its own words are one short line.
func TestTextsAreBounded(t *testing.T) {
	deliver := func(res delivery.Result) delivery.Result {
		r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": entry(answers(res))}})
		return r.Deliver(context.Background(), "a", &delivery.Job{})
	}
	text := rapid.OneOf(rapid.StringN(0, 2000, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 900), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(rt *rapid.T) {
		said := &delivery.Provider{Code: text.Draw(rt, "code"), MessageID: text.Draw(rt, "id"), Answer: text.Draw(rt, "answer")}
		before := *said
		res := deliver(delivery.Result{Class: delivery.Permanent, Detail: text.Draw(rt, "detail"), Provider: said})
		most := []int{200, delivery.MaxProviderText, delivery.MaxProviderText, delivery.MaxAnswer}
		for i, line := range []string{res.Detail, res.Provider.Code, res.Provider.MessageID, res.Provider.Answer} {
			if len(line) > most[i] || strings.ContainsAny(line, "\r\n\x00\u2028") || !utf8.ValidString(line) {
				rt.Fatalf("%q", line)
			}
		}
		if *said != before {
			rt.Fatal("the sink's own texts were changed")
		}
	})
	said := &delivery.Provider{Code: "A\nB", MessageID: strings.Repeat("é", 1000), GoneSince: time.Unix(7, 0), Answer: "a\n" + strings.Repeat("é", 1000)}
	res := deliver(delivery.Result{Class: delivery.Permanent, Detail: "HTTP 404 Not Found", Provider: said})
	if p := res.Provider; res.Detail != "HTTP 404 Not Found" || p.Code != "A B" ||
		!strings.HasPrefix(p.MessageID, "éé") || !strings.HasPrefix(p.Answer, "a éé") ||
		!utf8.ValidString(p.MessageID+"|"+p.Answer) || len(p.MessageID) > delivery.MaxProviderText || len(p.Answer) > delivery.MaxAnswer ||
		!p.GoneSince.Equal(said.GoneSince) {
		t.Errorf("%+v, %+v", res, p)
	}
}

func TestRunClose(t *testing.T) {
	bad := errors.New("disk full")
	closed := 0
	good := answers(delivery.Result{})
	good.closed = &closed
	broken := good
	broken.closing = bad
	broken.run = func(context.Context) error { return bad }

	r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": entry(good)}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run after cancel: %v", err)
	}

	r, _, _ = newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": entry(good), "b": entry(broken)}})
	if err := r.Run(t.Context()); !errors.Is(err, bad) || !strings.HasPrefix(err.Error(), "sinks.b: ") {
		t.Errorf("Run: %v", err)
	}
	if err := r.Close(); !errors.Is(err, bad) || closed != 2 {
		t.Errorf("Close: %v, %d closed", err, closed)
	}
}

// values are those of a metric by its labels: of a counter or a gauge, or how much a histogram has counted.
func values(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if f.GetName() == name {
				list[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return list
}

// TestDestinations: only a sink that has several tells them.
func TestDestinations(t *testing.T) {
	configs := map[string]sink.Config{"log": log.Default()}
	for name, url := range map[string]string{"fixed": "https://a.example/", "hooks": `{{ .Header "to" }}`} {
		cfg := http.Default()
		cfg.URL, configs[name] = url, cfg
	}
	entries, err := sink.OpenAll(configs, host)
	if err != nil {
		t.Fatal(err)
	}
	r, _, _ := newRouter(t, sink.Options{Sinks: entries})
	for _, name := range []string{"log", "fixed", "none"} {
		if r.Destinations(name) != nil {
			t.Errorf("%s has several destinations", name)
		}
	}
	if got := r.Destinations("hooks")(jobOf("", "", "to", "https://b.example/x")); got != "https://b.example:443" {
		t.Errorf("the destination is %s", got)
	}
}

// TestReadings: what a sink has answered, how long that took, and what it has not answered yet. A call that pacer has cancelled is no
// answer.
func TestReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		slow := fake{deliver: func(_ context.Context, j *delivery.Job) delivery.Result {
			switch j.ID {
			case "hangs":
				<-hangs
				return delivery.Result{Class: delivery.Interrupted}
			case "fails":
				time.Sleep(800 * time.Millisecond)
				return delivery.Result{Class: delivery.Temporary, Status: 500, Detail: "HTTP 500"}
			}
			time.Sleep(40 * time.Millisecond)
			return delivery.Result{}
		}}
		r, reg, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"slow": entry(slow), "a": entry(answers(delivery.Result{}))}})
		for range 98 {
			r.Deliver(t.Context(), "slow", &delivery.Job{})
		}
		for range 2 {
			if got := r.Deliver(t.Context(), "slow", &delivery.Job{ID: "fails"}); got.Took != 800*time.Millisecond {
				t.Errorf("a call took %s", got.Took)
			}
		}
		failed := time.Now()
		r.Deliver(t.Context(), "slow", &delivery.Job{}) // it is not forgotten
		go r.Deliver(t.Context(), "slow", &delivery.Job{ID: "hangs"})
		synctest.Wait()
		list := r.Readings()
		if len(list) != 2 || list[0].Sink != "a" || list[0].Took.Total() != 0 || list[0].Most != 7 {
			t.Fatalf("%+v", list)
		}
		got := &list[1]
		if got.InFlight != 1 || got.Answers[delivery.Delivered] != 99 || got.Answers[delivery.Temporary] != 2 || got.Took.Total() != 101 {
			t.Errorf("%+v", got)
		}
		if last := got.Failure; last.Detail != "HTTP 500" || !last.At.Equal(failed) || list[0].Failure != (delivery.Failure{}) {
			t.Errorf("the last failures: %+v and %+v", last, list[0].Failure)
		}
		if n, all := values(t, reg, "pacer_jobs_in_flight"), values(t, reg, "pacer_sink_seconds"); n["slow"] != 1 || n["a"] != 0 ||
			len(all) != 2*len(delivery.ResultClasses) || all["temporary slow"] != 2 || all["delivered slow"] != 99 || all["delivered a"] != 0 {
			t.Errorf("as metrics: %v, %v", n, all)
		}
		for part, want := range map[float64]time.Duration{0.5: 40 * time.Millisecond, 0.99: 800 * time.Millisecond} {
			if took := got.Took.Quantile(part); (took - want).Abs() > want/8 {
				t.Errorf("%v of the answers within %s, want about %s", part, took, want)
			}
		}
		close(hangs)
		synctest.Wait()
		if after := r.Readings()[1]; after.InFlight != 0 || after.Took.Total() != 101 || after.Failure != got.Failure || after.Answers[delivery.Interrupted] != 1 {
			t.Errorf("%+v", after)
		}
	})
}
