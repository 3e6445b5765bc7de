// Package telegram is the sink that sends jobs by a bot of Telegram, by its Bot API.
package telegram

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*httpcall.Client
	path string // that all methods begin with: it has the token, and is never shown
}

// New makes a sink of a valid configuration: each job's payload is the parameters of a method of the Bot API. It reads the files that the
// configuration names and opens no connection.
func New(c *Config, host base.Host) (*httpcall.Sink[parts], error) {
	flood := floodWait{}
	var mu sync.Mutex // guards flood
	return httpcall.NewSink(host, httpcall.Dialect[parts]{
		Limits: c.Limits, Build: c.build, Classify: classify, Blame: blame,
		Request: func(p parts, job *delivery.Job, _ time.Time) (httpcall.Request, error) {
			_, err := chatOf(job.Payload)
			return p.request(c.Method, job.Payload), err
		},
		Check: func(p parts) (httpcall.Request, error) { return p.request("getMe", []byte("{}")), nil },
		After: func(job *delivery.Job, res *delivery.Result) {
			if job != nil && res.Class == delivery.Throttled && res.Scope == delivery.ScopeRecipient {
				chat, _ := chatOf(job.Payload)
				mu.Lock()
				defer mu.Unlock()
				if flood.refused(chat, time.Now()) {
					res.Scope = delivery.ScopeSink
				}
			}
		},
	})
}

func (c *Config) build(r *access.Reader, o httpcall.Options) (p parts) {
	token := r.Secret("token", c.Token)
	if !tokenPattern.MatchString(token) {
		r.Fail(errors.New(notAToken))
	}
	_, key, _ := strings.Cut(token, ":")
	o.Secrets = []string{token, key}
	p.path = "/bot" + token + "/"
	p.Client = c.Client(r, o)
	return p
}

// request is a call of a method of the Bot API.
func (p parts) request(method string, parameters []byte) httpcall.Request {
	return httpcall.Request{Path: p.path + method, Body: parameters, Header: http.Header{"Content-Type": {"application/json"}}}
}

// maxPayload bounds the parameters of a method, in bytes.
const maxPayload = 64 << 10

// chatOf returns the chat that the parameters of a method name. The error repeats nothing of them.
func chatOf(payload []byte) (chat string, err error) {
	if len(payload) > maxPayload {
		return "", fmt.Errorf("the payload is longer than %d bytes", maxPayload)
	}
	var p struct {
		ChatID any `json:"chat_id"`
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if d.Decode(&p) != nil {
		return "", errors.New("the payload is no JSON object; it has to be the parameters of a method of the Bot API")
	}
	switch id := p.ChatID.(type) {
	case string:
		chat = id
	case json.Number:
		chat = id.String()
	}
	if chat == "" {
		return "", errors.New("the payload has no chat_id, a number or a text")
	}
	return chat, nil
}

func blame(_ parts, res *delivery.Result) string {
	switch {
	case res.Class == delivery.Delivered:
		return ""
	case res.Status == http.StatusUnauthorized || res.Status == http.StatusNotFound:
		return "token"
	}
	return "url"
}

const (
	enough = 3 // chats
	within = time.Second
)

// floodWait has when the last refusal of each chat was, as long as it counts. It is not safe for concurrent use.
type floodWait map[string]time.Time

// refused records that a request to a chat was answered with 429 at now. The result ofBot is true if the service holds back the whole
// bot, not one chat. The answers are alike, but several chats are held back within a second only by chance.
func (f floodWait) refused(chat string, now time.Time) (ofBot bool) {
	maps.DeleteFunc(f, func(_ string, at time.Time) bool { return now.Sub(at) > within })
	f[chat] = now
	return len(f) >= enough
}
