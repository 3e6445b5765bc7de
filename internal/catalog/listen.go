package catalog

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/retry"
)

// channel is what the triggers notify.
const channel = "pacer_catalog"

// scope says how much of the catalog to load.
type scope struct {
	full bool // everything, not only what has a higher revision
	poll bool // the poll is due
}

// hints collects the listener's hints until the loader takes them. It is safe for concurrent use.
type hints struct {
	wake retry.Signal

	mu     sync.Mutex // guards the rest
	wanted scope
}

// add requests a load.
func (h *hints) add(s scope) {
	h.mu.Lock()
	h.wanted.full = h.wanted.full || s.full
	h.mu.Unlock()
	h.wake.Send()
}

// take returns what was requested since the last take.
func (h *hints) take() scope {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.wanted
	h.wanted = scope{}
	return s
}

// listen keeps one connection listening until ctx ends, and turns notifications into hints. It closes attempted
// once the first LISTEN has succeeded or failed.
func (p *Postgres) listen(ctx context.Context, attempted chan<- struct{}) {
	for failures := 0; ctx.Err() == nil; failures++ {
		conn, err := p.connectListener(ctx)
		if attempted != nil {
			close(attempted)
			attempted = nil
		}
		if err == nil {
			failures = 0
			p.hear(ctx, conn)
			// The loader finds out, and reports, whether only this connection is lost or the whole database.
			p.hints.add(scope{})
		}
		_ = retry.Sleep(ctx, backoff.Delay(failures+1))
	}
}

// connectListener opens a connection that listens.
func (p *Postgres) connectListener(ctx context.Context) (*pgx.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(dialCtx, p.database.target())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(dialCtx, "LISTEN "+channel); err != nil {
		closeConn(ctx, conn)
		return nil, err
	}
	return conn, nil
}

// hear handles notifications until the connection or ctx ends.
func (p *Postgres) hear(ctx context.Context, conn *pgx.Conn) {
	defer closeConn(ctx, conn)
	p.listening.Store(true)
	p.metrics.listening.Set(1)
	defer func() {
		p.listening.Store(false)
		p.metrics.listening.Set(0)
	}()
	// Changes committed before LISTEN were not announced.
	p.hints.add(scope{})
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		p.hints.add(hint(notification.Payload))
	}
}

// hint parses the payload of a notification: "<table> <id>" for a row, "<table>" alone if rows were removed. An
// unknown payload causes a full load, so that no change is missed.
func hint(payload string) scope {
	table, _, row := strings.Cut(payload, " ")
	return scope{full: !row || table != "campaigns" && table != "quotas" && table != "destinations"}
}

// closeConn closes the connection within a second, although ctx may have ended.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
