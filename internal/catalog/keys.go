package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// KeyedRequest is a request with an Idempotency-Key.
type KeyedRequest struct {
	Actor, Key  string
	Fingerprint []byte // SHA-256 of the request
}

// KeptAnswer is the answer to a request, as it was given.
type KeptAnswer struct {
	Status int
	Header json.RawMessage
	Body   string
}

var (
	// ErrKeyReused means that another request had the key.
	ErrKeyReused = errors.New("another request had this Idempotency-Key; make up a new one for each")
	// ErrKeyInUse means that the request with the key is being done.
	ErrKeyInUse = errors.New("the request with this Idempotency-Key is being done; try again in some seconds")
	// ErrKeyUnfinished means that nobody will answer the request with the key any more, and that it may have been done.
	ErrKeyUnfinished = errors.New("what became of the request with this Idempotency-Key is not known: the process that was asked has ended, or lost the database; look at what was done, and use another key")
	// ErrManyKeys means that no more keys are remembered.
	ErrManyKeys = errors.New("too many requests of the last day had an Idempotency-Key; send this one without, or later")
)

const (
	// keysKept is how long answers are remembered, and keyWithin how long a request may take.
	keysKept  = 24 * time.Hour
	keyWithin = 10 * time.Minute
	// maxKeys bounds the table, and sweepKeys how many old rows a claim removes: more than it adds.
	maxKeys   = 100_000
	sweepKeys = 100
)

const (
	sweepOldKeys = `DELETE FROM pacer.idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM pacer.idempotency_keys WHERE begun < clock_timestamp() - $1::interval ORDER BY begun LIMIT $2 FOR UPDATE SKIP LOCKED))`
	forgetKey = `DELETE FROM pacer.idempotency_keys WHERE actor = $1 AND key = $2 AND begun < clock_timestamp() - $3::interval`
	claimKey  = `INSERT INTO pacer.idempotency_keys (actor, key, fingerprint)
SELECT $1, $2, $3 WHERE (SELECT count(*) FROM (SELECT FROM pacer.idempotency_keys LIMIT $4) n) < $4
ON CONFLICT (actor, key) DO NOTHING RETURNING claim`
	findKey = `SELECT fingerprint, status, header, answer, begun < clock_timestamp() - $3::interval
FROM pacer.idempotency_keys WHERE actor = $1 AND key = $2`
)

// ClaimKey returns the number of a request that is new, or the answer to one that was made before. The error is ErrKeyReused, ErrKeyInUse,
// ErrKeyUnfinished or ErrManyKeys. Of those that claim a key at a time one gets it.
func (a *Admin) ClaimKey(ctx context.Context, r KeyedRequest) (claim int64, before *KeptAnswer, err error) {
	type found struct {
		claim  int64
		before *KeptAnswer
	}
	f, err := alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (f found, err error) {
		if _, err = tx.Exec(ctx, sweepOldKeys, keysKept, sweepKeys); err != nil {
			return f, err
		}
		if _, err = tx.Exec(ctx, forgetKey, r.Actor, r.Key, keysKept); err != nil {
			return f, err
		}
		err = tx.QueryRow(ctx, claimKey, r.Actor, r.Key, r.Fingerprint, maxKeys).Scan(&f.claim)
		if errors.Is(err, pgx.ErrNoRows) {
			f.before, err = answered(ctx, tx, r)
		}
		return f, err
	})
	return f.claim, f.before, err
}

// answered returns the answer to a request that somebody has claimed before.
func answered(ctx context.Context, tx pgx.Tx, r KeyedRequest) (*KeptAnswer, error) {
	var fingerprint []byte
	var status *int
	var header, body *string
	var late bool
	err := tx.QueryRow(ctx, findKey, r.Actor, r.Key, keyWithin).Scan(&fingerprint, &status, &header, &body, &late)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, inLine(ErrManyKeys.Error(), ErrManyKeys)
	case err != nil:
		return nil, err
	case !bytes.Equal(fingerprint, r.Fingerprint):
		return nil, inLine(ErrKeyReused.Error(), ErrKeyReused)
	case status == nil && late:
		return nil, inLine(ErrKeyUnfinished.Error(), ErrKeyUnfinished)
	case status == nil:
		return nil, inLine(ErrKeyInUse.Error(), ErrKeyInUse)
	}
	return &KeptAnswer{*status, json.RawMessage(orZero(header)), orZero(body)}, nil
}

// KeepAnswer remembers the answer to a request that was claimed.
func (a *Admin) KeepAnswer(ctx context.Context, r KeyedRequest, claim int64, answer KeptAnswer) error {
	_, err := alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		_, err := tx.Exec(ctx, `UPDATE pacer.idempotency_keys SET status = $4, header = $5, answer = $6 WHERE actor = $1 AND key = $2 AND claim = $3`,
			r.Actor, r.Key, claim, answer.Status, string(answer.Header), answer.Body)
		return struct{}{}, err
	})
	return err
}

// LeaveKey records that what became of a request that was claimed cannot be found out.
func (a *Admin) LeaveKey(ctx context.Context, r KeyedRequest, claim int64) error {
	_, err := alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		_, err := tx.Exec(ctx, `UPDATE pacer.idempotency_keys SET begun = begun - $4::interval WHERE actor = $1 AND key = $2 AND claim = $3 AND status IS NULL`,
			r.Actor, r.Key, claim, keyWithin)
		return struct{}{}, err
	})
	return err
}

// DropKey forgets a request that was claimed and has changed nothing: sent again it is a new one.
func (a *Admin) DropKey(ctx context.Context, r KeyedRequest, claim int64) error {
	_, err := alter(ctx, a, func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		_, err := tx.Exec(ctx, `DELETE FROM pacer.idempotency_keys WHERE actor = $1 AND key = $2 AND claim = $3`, r.Actor, r.Key, claim)
		return struct{}{}, err
	})
	return err
}
