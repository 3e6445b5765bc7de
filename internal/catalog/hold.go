package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"
)

var (
	// ErrLocked means that another process holds what is to be held.
	ErrLocked = errors.New("held by another process")
	// ErrLost means that the server may have given to others what was held.
	ErrLost = errors.New("the connection to PostgreSQL was lost, which kept others from doing the same")
)

// Hold makes sure that no other process holds what, until release is called. held ends with ctx, and with ErrLost as its cause
// when the connection breaks. The lock is one of a session of its own: the server releases it if this process dies, and no
// clock decides. The error is ErrLocked if another process was first.
func (a *Admin) Hold(ctx context.Context, what string) (held context.Context, release func(), err error) {
	dialing, cancel := context.WithTimeout(ctx, a.database.limit)
	defer cancel()
	conn, err := a.database.connect(dialing)
	if err != nil {
		return nil, nil, err
	}
	free := false
	err = conn.QueryRow(dialing, `SELECT pg_try_advisory_lock($1)`, lockOf(what)).Scan(&free)
	if err == nil && !free {
		err = fmt.Errorf("%s: %w", what, ErrLocked)
	}
	if err != nil {
		closeConn(ctx, conn)
		return nil, nil, explain(err)
	}
	held, lose := context.WithCancelCause(ctx)
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for { // nothing is listened to: this returns when the connection breaks, or with release
			if _, err := conn.WaitForNotification(watching); err != nil {
				lose(ErrLost)
				return
			}
		}
	}()
	return held, func() {
		lose(context.Canceled)
		stop()
		<-watched
		unlocking, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		// Waited for: the server notices some time after the end of a session that there is one lock less.
		_, _ = conn.Exec(unlocking, `SELECT pg_advisory_unlock($1)`, lockOf(what))
		closeConn(ctx, conn)
	}, nil
}

// lockOf returns the advisory lock of something that is held.
func lockOf(what string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("pacer " + what)) // never fails
	return int64(h.Sum64())
}
