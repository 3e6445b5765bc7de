package view

import (
	"context"
	"errors"
	"net/http"
)

// Keys remembers what was answered to requests with an Idempotency-Key, for all processes.
type Keys interface {
	// Claim returns the answer to a request that was made before; nil of a new one, which is then to be kept or dropped. The error is
	// ErrKeyReused, ErrKeyInUse, ErrKeyUnfinished, ErrBusy, or that the database does not do it.
	Claim(ctx context.Context, r KeyedRequest) (KeyClaim, *KeptAnswer, error)
}

// KeyClaim is a request that this process does.
type KeyClaim interface {
	// Keep remembers the answer, Drop forgets the request, which has changed nothing, and Leave says that whether it has is not known.
	Keep(ctx context.Context, answer KeptAnswer) error
	Drop(ctx context.Context) error
	Leave(ctx context.Context) error
}

// KeyedRequest is a request with an Idempotency-Key.
type KeyedRequest struct {
	Actor, Key  string
	Fingerprint []byte // SHA-256 of the request
}

// KeptAnswer is the answer to a request, as it was given.
type KeptAnswer struct {
	Status int
	Header http.Header
	Body   string
}

// The kinds of errors of Keys.
var (
	ErrKeyReused     = errors.New("another request had the key")
	ErrKeyInUse      = errors.New("the request with the key is being done")
	ErrKeyUnfinished = errors.New("the request with the key will never be answered")
)
