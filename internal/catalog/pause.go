package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// resumeEvery is the time between two attempts to end a pause. The clock of the database decides, and may be behind.
const resumeEvery = 250 * time.Millisecond

// pauseEnd returns when the first pause ends that does so by itself; zero if there is none.
func (s *state) pauseEnd() (first time.Time) {
	for _, until := range s.pauses {
		if first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// nextResume returns when to ask the database to end a pause; zero if there is none.
func (p *Postgres) nextResume() time.Time {
	end := p.state.pauseEnd()
	if !end.IsZero() && end.Before(p.resumeAt) {
		return p.resumeAt
	}
	return end
}

// resume asks the database to end the pauses that are over, if there are any. All daemons ask, and the first one does it. The catalog
// then reads it like any change.
func (p *Postgres) resume(ctx context.Context, pool *pgxpool.Pool) {
	now := time.Now()
	if next := p.nextResume(); next.IsZero() || next.After(now) {
		return
	}
	p.resumeAt = now.Add(resumeEvery)
	_, err := pool.Exec(ctx, `SELECT pacer.resume_due()`)
	if err == nil {
		p.unpaused.Worked()
		return
	}
	p.resumeAt = now.Add(p.options.PollInterval)
	if ctx.Err() == nil && p.unpaused.Failed() {
		p.options.Logger.Warn("pauses that are over are not ended; trying again", "error", explain(err))
	}
}
