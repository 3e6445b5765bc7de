// Package telegram is the sink that sends jobs by a bot of Telegram, by its Bot API.
package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// Options configure a Sink.
type Options struct {
	Config  Config // valid: Config.Problems found none
	Version string // of pacer, for User-Agent
	Logger  *slog.Logger
}

// Sink sends each job's payload as the parameters of a method of the Bot API, and classifies the answer (see classify). It is
// safe for concurrent use.
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt: the service knows no
// key by which it would recognise it.
type Sink struct {
	options Options
	parts   *access.Kept[parts]
	resent  atomic.Uint64

	mu    sync.Mutex
	flood floodWait // guarded by mu
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	api  *sinkhttp.API
	base string // of the path of all methods: it has the token, and is never shown
}

// New makes a Sink. It reads the files that the configuration names and opens no connection.
func New(opt Options) (*Sink, error) {
	if p := opt.Config.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	s := &Sink{options: opt}
	var err error
	s.parts, err = access.Keep(opt.Config.secrets, s.build)
	return s, err
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c := &s.options.Config
	token := r.Secret("token", c.Token)
	if !tokenPattern.MatchString(token) {
		r.Fail(errors.New(notAToken))
		return p
	}
	_, key, _ := strings.Cut(token, ":")
	var err error
	if p.api, err = c.API(r, sinkhttp.APIOptions{Version: s.options.Version, Secrets: []string{token, key}, Resent: &s.resent, Judged: true}); err != nil {
		r.Fail(err)
	}
	p.base = "/bot" + token + "/"
	return p
}

// maxPayload bounds the parameters of a method, in bytes.
const maxPayload = 64 << 10

// chatOf returns the chat that the parameters of a method name. The problem repeats nothing of them.
func chatOf(payload []byte) (chat, problem string) {
	if len(payload) > maxPayload {
		return "", fmt.Sprintf("the payload is longer than %d bytes", maxPayload)
	}
	var p struct {
		ChatID any `json:"chat_id"`
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if d.Decode(&p) != nil {
		return "", "the payload is no JSON object; it has to be the parameters of a method of the Bot API"
	}
	switch id := p.ChatID.(type) {
	case string:
		chat = id
	case json.Number:
		chat = id.String()
	}
	if chat == "" {
		return "", "the payload has no chat_id, a number or a text"
	}
	return chat, ""
}

// Deliver sends the job's message and waits for the answer, at most for the configured timeout.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	return s.attempt(ctx, job, nil)
}

// Try delivers a job as Deliver does, and returns the request and its answer as text.
func (s *Sink) Try(ctx context.Context, job *delivery.Job) (res delivery.Result, request, answer string) {
	return sinkhttp.Trying(func(shown *sinkhttp.Exchange) delivery.Result { return s.attempt(ctx, job, shown) })
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *sinkhttp.Exchange) delivery.Result {
	chat, problem := chatOf(job.Payload)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	res := s.call(ctx, s.options.Config.Method, job.Payload, shown)
	if res.Class == delivery.Throttled && res.Scope == delivery.ScopeRecipient {
		s.mu.Lock()
		ofBot := s.flood.refused(chat, time.Now())
		s.mu.Unlock()
		if ofBot {
			res.Scope = delivery.ScopeSink
		}
	}
	return res
}

// call calls a method of the Bot API.
func (s *Sink) call(ctx context.Context, method string, parameters []byte, shown *sinkhttp.Exchange) delivery.Result {
	p := s.parts.Now()
	answer, none := p.api.Post(ctx, sinkhttp.Request{
		Path: p.base + method, Body: parameters, Shown: shown, Header: http.Header{"Content-Type": {"application/json"}},
	})
	if none != nil {
		return *none
	}
	res := classify(answer, time.Now())
	if res.Class != delivery.Delivered {
		res.Detail = p.api.Scrub(res.Detail + " from " + p.api.Where())
	}
	if res.Provider != nil {
		res.Provider.Code = p.api.Scrub(res.Provider.Code)
	}
	return res
}

// Run reads the files that the configuration names again, until ctx is cancelled.
func (s *Sink) Run(ctx context.Context) error {
	s.parts.Follow(ctx, access.Following[parts]{
		Logger: s.options.Logger, Destination: s.parts.Now().api.Where(), Changed: func(old parts) { old.api.Close() },
	})
	return nil
}

// Check asks the service who the bot is.
func (s *Sink) Check(ctx context.Context) error {
	defer s.parts.Now().api.Close()
	switch res := s.call(ctx, "getMe", []byte("{}"), nil); {
	case res.Class == delivery.Delivered:
		return nil
	case res.Status == http.StatusUnauthorized || res.Status == http.StatusNotFound:
		return fmt.Errorf("token: %s", res.Detail)
	case res.Class == delivery.Unreachable:
		return fmt.Errorf("url: cannot connect: %s", res.Detail)
	default:
		return fmt.Errorf("url: %s", res.Detail)
	}
}

// Resent returns how many requests were written once more, since the service had certainly not processed them.
func (s *Sink) Resent() uint64 { return s.resent.Load() }

// Close closes idle connections.
func (s *Sink) Close() error {
	s.parts.Now().api.Close()
	return nil
}
