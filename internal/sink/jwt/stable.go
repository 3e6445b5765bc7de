package jwt

import (
	"crypto/ecdsa"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Stable makes tokens that are a function of the key, of whom they are for and of the time alone: their times are those of the last multiple
// of Every, and their signature is deterministic. So all daemons send the same bytes without an exchange between them.
//
// Safe for concurrent use. No caller waits for another: two that need the next token at once make the same.
type Stable struct {
	Key    *ecdsa.PrivateKey // of P-256
	Every  time.Duration     // from one token to the next
	Header map[string]any
	Claims func(audience string, begun time.Time) map[string]any
	// Before and After are around each token.
	Before, After string

	current atomic.Pointer[round]
}

// round has the tokens of one time, by audience.
type round struct {
	begun time.Time
	texts sync.Map
	kept  atomic.Int32 // how many
}

const maxKept = 1000 // audiences of a round: they may come from jobs

// Token returns the token for an audience at now, with what is around it.
func (s *Stable) Token(audience string, now time.Time) string {
	begun, r := now.Truncate(s.Every), s.current.Load()
	if r == nil || !r.begun.Equal(begun) || r.kept.Load() >= maxKept {
		r = &round{begun: begun}
		s.current.Store(r)
	}
	if text, ok := r.texts.Load(audience); ok {
		return text.(string)
	}
	token, _ := Sign(ES256, s.Key, maps.Clone(s.Header), s.Claims(audience, begun)) // such a key signs everything
	text := s.Before + token + s.After
	r.texts.Store(audience, text)
	r.kept.Add(1)
	return text
}
