// Package steps is the sink of requests that take several calls over HTTP, one after the other. A call uses the answers of those before
// it. A poll is repeated until its answer says that it is done. One Deliver makes one step; between them the job waits with its state,
// which the pacer keeps.
package steps

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/rule"
	"github.com/pacer/pacer/internal/sink/token"
)

// Sink makes the steps of requests. It is safe for concurrent use. Which step comes next is said by the job's state; without
// one it is the first. A step that is done, and is not the last, answers pending with the state of the next one.
type Sink struct {
	base.Service[parts]
	config *Config
	steps  []*step
}

// parts are the clients of the calls of all steps, in the order in which they are made. They share their connections.
type parts struct {
	*http.Client // the first of them
	calls        []*http.Client
}

// step is one step, compiled.
type step struct {
	id       string
	call     int  // which of the calls it is
	lookup   bool // the call before it says whether it was made
	safe     bool // may be made again without harm: it changes nothing at the destination
	take     taking
	found    *rule.Expression
	lookedUp taking

	every       retry.Backoff // of a poll; zero for none
	until, fail *rule.Expression
}

// jitter spreads the polls of requests that began together.
const jitter = 0.1

// compile compiles the steps. An error begins with the key.
func (c *Config) compile() ([]*step, error) {
	var list []*step
	calls := 0
	for i := range c.Steps {
		from, at := &c.Steps[i], fmt.Sprintf("steps.%d.", i)
		own := c.calls(i)
		calls += len(own)
		s := &step{id: from.ID, call: calls - 1, lookup: from.Once, safe: own[len(own)-1].Method == methodGet}
		var err error
		if s.take, err = newTaking(at+"take", from.Take, c.Namespaces); err != nil {
			return nil, err
		}
		s.lookedUp = s.take
		if len(from.Lookup.Take) > 0 {
			if s.lookedUp, err = newTaking(at+"lookup.take", from.Lookup.Take, c.Namespaces); err != nil {
				return nil, err
			}
		}
		for _, e := range []struct {
			key, text string
			to        **rule.Expression
		}{{"lookup.found", from.Lookup.Found, &s.found}, {"poll.until", from.Poll.Until, &s.until}, {"poll.fail", from.Poll.Fail, &s.fail}} {
			if e.text == "" {
				continue
			}
			if *e.to, err = rule.Compile(at+e.key, e.text, true); err != nil {
				return nil, err
			}
		}
		if from.Poll.used() {
			s.every = retry.Backoff{Initial: from.Poll.Every, Max: max(from.Poll.Every, from.Poll.Max), Jitter: jitter}
		}
		list = append(list, s)
	}
	return list, nil
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	list, err := c.compile()
	if err != nil {
		return nil, err
	}
	s := &Sink{config: c, steps: list}
	d := base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt}
	if c.OAuth2.TokenURL != "" {
		d.Fetch = func(ctx context.Context, p parts) (token.Token, error) { return p.AccessToken(ctx) }
	}
	return s, s.Open(host, d)
}

func (s *Sink) build(r *access.Reader) parts {
	var configs []*http.Config
	for _, of := range s.config.allCalls() {
		configs = append(configs, of.Config)
	}
	calls := http.Open(r, httpcall.Options{Version: s.Version, Resent: &s.Repeats}, configs...)
	return parts{calls[0], calls}
}

// attempt makes the step that the job has come to. Where requests and answers are recorded, it makes all further steps too, and waits between
// them.
func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	res := s.next(ctx, job, shown)
	if shown == nil {
		return res
	}
	own := *job
	for res.Class == delivery.Pending && retry.Sleep(ctx, res.RetryAfter) == nil {
		own.State = res.State
		res = s.next(ctx, &own, shown)
	}
	return res
}

// next makes the step that the job has come to.
func (s *Sink) next(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	r := &request{sink: s, calls: s.Now().calls, job: job, began: time.Now(), shown: shown}
	if job.State != nil {
		if !job.State.Began.IsZero() {
			r.began = job.State.Began
		}
		if r.at = slices.IndexFunc(s.steps, func(st *step) bool { return st.id == job.State.Step }); r.at < 0 {
			return delivery.Result{
				Class: delivery.Misconfigured, Scope: delivery.ScopeCampaign,
				Detail: "the request has come to step " + job.State.Step + ", which the sink does not have any more: add it again",
			}
		}
	}
	st := s.steps[r.at]
	if left := r.left(time.Now()); left <= 0 {
		return delivery.Result{
			Class: delivery.Permanent, Reason: delivery.ReasonDeadline,
			Detail: fmt.Sprintf("step %s was not done within %s of the first call", st.id, s.config.Deadline),
		}
	}
	res := r.make(ctx, st)
	if res.Detail != "" {
		res.Detail = "step " + st.id + ": " + res.Detail
	}
	return res
}

// request is a job at one of its steps.
type request struct {
	sink  *Sink
	calls []*http.Client
	job   *delivery.Job
	at    int // the step
	began time.Time
	shown *base.Exchange
}

// left is how much time there is until the deadline.
func (r *request) left(now time.Time) time.Duration {
	return r.began.Add(r.sink.config.Deadline).Sub(now)
}

// make makes a step.
func (r *request) make(ctx context.Context, st *step) delivery.Result {
	vars := map[string]any{}
	if state := r.job.State; state != nil && len(state.Vars) > 0 {
		var valid bool
		if vars, valid = rule.Decode(state.Vars).(map[string]any); !valid {
			return delivery.Result{Class: delivery.Permanent, Detail: "what the steps before have taken cannot be read"}
		}
	}
	if st.lookup {
		if res, over := r.lookUp(ctx, st, vars); over {
			return res
		}
	}
	res, answer := r.ask(ctx, st.call, vars)
	if res.Class != delivery.Delivered {
		return res
	}
	if answer == nil {
		answer = &rule.Answer{Status: res.Status, Vars: vars}
	}
	missing := st.take.from(answer, vars)
	if st.until != nil {
		if st.fail != nil && st.fail.Is(answer) {
			return delivery.Result{Class: delivery.Permanent, Status: res.Status, Detail: "the answer says that it has failed", Provider: res.Provider}
		}
		if !st.until.Is(answer) {
			return r.again(st, res.Status)
		}
	}
	return r.done(st, res, vars, missing)
}

// ask makes a call, and returns the answer that was read whole, if there is one.
func (r *request) ask(ctx context.Context, call int, vars map[string]any) (res delivery.Result, answer *rule.Answer) {
	return r.calls[call].Ask(ctx, r.sink.Tokens, r.job, vars, r.shown)
}

// lookUp asks whether the step was made before. It runs before every call, since a crash leaves no trace of a call in flight. The result
// over means that the step must not be made: it was made, or that is unknown, as when found has no value for the answer.
func (r *request) lookUp(ctx context.Context, st *step, vars map[string]any) (res delivery.Result, over bool) {
	res, answer := r.ask(ctx, st.call-1, vars)
	switch {
	case res.Status == nethttp.StatusNotFound || res.Status == nethttp.StatusGone:
		return res, false
	case res.Class != delivery.Delivered:
		if res.Detail != "" {
			res.Detail = "lookup: " + res.Detail
		}
		return res, true
	}
	var made any = true
	if st.found != nil {
		made = st.found.Run(answer)
	}
	if made == false {
		return res, false
	}
	unclear := delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody, Status: res.Status}
	if made != true {
		unclear.Detail = "lookup: the answer does not say whether the step was made: lookup.found has no value for it"
		return unclear, true
	}
	if missing := st.lookedUp.from(answer, vars); len(missing) > 0 {
		unclear.Detail = "lookup: the answer does not have what take." + missing[0] + " says"
		return unclear, true
	}
	return r.done(st, res, vars, nil), true
}

// again has a poll wait. It does not wait beyond the deadline: then it is over.
func (r *request) again(st *step, status int) delivery.Result {
	next := delivery.State{Step: st.id, Began: r.began}
	if s := r.job.State; s != nil {
		next.Vars, next.Waits = s.Vars, s.Waits
	}
	next.Waits++
	return delivery.Result{
		Class: delivery.Pending, Status: status, State: &next, Repeatable: true,
		RetryAfter: max(0, min(st.every.Delay(int(next.Waits)), r.left(time.Now()))),
	}
}

// done goes on to the next step, or ends the request.
func (r *request) done(st *step, res delivery.Result, vars map[string]any, missing []string) delivery.Result {
	if len(missing) > 0 {
		return delivery.Result{
			Class: delivery.Permanent, Status: res.Status, Provider: res.Provider, Detail: "the answer does not have what take." + missing[0] + " says",
		}
	}
	if r.at == len(r.sink.steps)-1 {
		return res
	}
	var b string
	var err error
	if len(vars) > 0 {
		b, err = render.JSON(vars)
	}
	if err != nil || len(b) > delivery.MaxVars {
		return delivery.Result{
			Class: delivery.Permanent, Status: res.Status, Provider: res.Provider,
			Detail: fmt.Sprintf("what the steps have taken from answers is %d bytes long, and may be %d: take less", len(b), delivery.MaxVars),
		}
	}
	next := r.sink.steps[r.at+1]
	wait := time.Duration(0)
	if next.until != nil {
		wait = max(0, min(next.every.Delay(1), r.left(time.Now())))
	}
	return delivery.Result{
		Class: delivery.Pending, Status: res.Status, Provider: res.Provider, RetryAfter: wait, Repeatable: st.safe,
		State: &delivery.State{Step: next.id, Vars: []byte(b), Began: r.began},
	}
}

// Check fetches an access token if calls need one, and connects to the destination of each call.
func (s *Sink) Check(ctx context.Context) error {
	if _, err := s.FetchToken(ctx); err != nil {
		return err
	}
	for n, of := range s.config.allCalls() {
		if err := s.Now().calls[n].Check(ctx); err != nil {
			return errors.New(of.Name(err.Error()))
		}
	}
	return nil
}
