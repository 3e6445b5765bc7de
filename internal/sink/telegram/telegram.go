// Package telegram is the sink that sends jobs by a bot of Telegram, by its Bot API.
package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// Sink sends each job's payload as the parameters of a method of the Bot API, and classifies the answer (see classify).
//
// A message that was sent and got no answer may have arrived, and is sent again by the next attempt: the service knows no
// key by which it would recognise it.
type Sink struct {
	base.Service[parts]
	config *Config

	mu    sync.Mutex
	flood floodWait // guarded by mu
}

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*sinkhttp.API
	path string // that all methods begin with: it has the token, and is never shown
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c}
	return s, s.Open(host, base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt})
}

func (s *Sink) build(r *access.Reader) (p parts) {
	token := r.Secret("token", s.config.Token)
	if !tokenPattern.MatchString(token) {
		r.Fail(errors.New(notAToken))
		return p
	}
	_, key, _ := strings.Cut(token, ":")
	p.path = "/bot" + token + "/"
	p.API = s.config.API(r, sinkhttp.APIOptions{Version: s.Version, Secrets: []string{token, key}, Resent: &s.Repeats})
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

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	chat, problem := chatOf(job.Payload)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	res := s.call(ctx, s.config.Method, job.Payload, shown)
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
func (s *Sink) call(ctx context.Context, method string, parameters []byte, shown *base.Exchange) delivery.Result {
	p := s.Now()
	return p.Ask(ctx, sinkhttp.Request{
		Path: p.path + method, Body: parameters, Shown: shown, Header: http.Header{"Content-Type": {"application/json"}},
	}, classify)
}

// Check asks the service who the bot is.
func (s *Sink) Check(ctx context.Context) error {
	defer s.Now().Close()
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
