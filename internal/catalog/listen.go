package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/retry"
)

// channel is what the triggers notify.
const channel = "pacer_catalog"

// listen keeps one connection listening until ctx ends, and turns notifications into requests to read. It closes attempted
// once the first LISTEN has succeeded or failed.
func (p *Postgres) listen(ctx context.Context, attempted chan<- struct{}) {
	own := fmt.Sprintf("%s_%016x", channel, rand.Uint64())
	for failures := 0; ctx.Err() == nil; failures++ {
		conn, err := p.connectListener(ctx, own)
		if attempted != nil {
			close(attempted)
			attempted = nil
		}
		if err == nil {
			if p.hear(ctx, conn, own) {
				failures = 0
			}
			// The loader finds out, and reports, whether only this connection is lost or the whole database.
			p.wake.Send()
		}
		_ = retry.Sleep(ctx, backoff.Delay(failures+1))
	}
}

// connectListener opens a connection that listens to what the triggers notify, and to a channel of its own.
func (p *Postgres) connectListener(ctx context.Context, own string) (*pgx.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := p.database.connect(dialCtx)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{channel, own} {
		if _, err := conn.Exec(dialCtx, "LISTEN "+name); err != nil {
			closeConn(ctx, conn)
			return nil, err
		}
	}
	return conn, nil
}

// A connection without a notification for deafPolls polls is replaced: it is dead, or a pooler passes its notifications to others.
const (
	deafPolls = 3
	deafLeast = time.Second
)

// hear handles notifications until the connection or ctx ends, or none arrives, and reports whether any did. At each poll the database
// is asked for one on the channel own, over another connection.
func (p *Postgres) hear(ctx context.Context, conn *pgx.Conn, own string) (heard bool) {
	defer closeConn(ctx, conn)
	asking, cancel := context.WithCancel(ctx)
	var asks sync.WaitGroup
	asks.Go(func() {
		for asking.Err() == nil {
			_ = p.database.do(asking, "notify", func(ctx context.Context, pool *pgxpool.Pool) error {
				_, err := pool.Exec(ctx, `SELECT pg_notify($1, '')`, own)
				return err
			})
			_ = retry.Sleep(asking, p.options.PollInterval)
		}
	})
	defer asks.Wait()
	defer cancel()
	defer func() {
		p.listening.Store(false)
		p.metrics.listening.Set(0)
	}()
	// Changes committed before LISTEN were not announced.
	p.wake.Send()
	for {
		limited, stop := context.WithTimeout(ctx, max(deafPolls*p.options.PollInterval, deafLeast))
		notification, err := conn.WaitForNotification(limited)
		stop()
		if err != nil {
			return heard
		}
		if notification.Channel != own {
			p.wake.Send() // revisions say which rows have changed, and whether some are gone
		} else if !heard {
			heard = true
			p.listening.Store(true)
			p.metrics.listening.Set(1)
		}
	}
}
