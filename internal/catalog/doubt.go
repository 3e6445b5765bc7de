package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrInDoubt means that the database was lost while a change was being committed: whether it was made is not known.
var ErrInDoubt = errors.New("the database was lost while the change was committed, and whether it was made is not known; look at it again")

const (
	// resolveWithin bounds finding out what became of a transaction, and resolveEvery is how often the server is asked.
	resolveWithin = 5 * time.Second
	resolveEvery  = 100 * time.Millisecond
)

// fate identifies a transaction, to ask what became of it: its number, at a server that has not been restarted since. After a restart, or
// at another server that has taken over, the same number may be that of another transaction.
type fate struct {
	number *int64 // nil: it has changed nothing
	server time.Time
}

func fateOf(ctx context.Context, tx pgx.Tx) (f fate, err error) {
	err = tx.QueryRow(ctx, `SELECT txid_current_if_assigned(), pg_postmaster_start_time()`).Scan(&f.number, &f.server)
	return f, err
}

// inDoubt tells whether an error of a commit leaves open whether it was done: any but the server's own word.
func inDoubt(err error) bool {
	server, said := errors.AsType[*pgconn.PgError](err)
	return err != nil && !errors.Is(err, pgx.ErrTxCommitRollback) && (!said || server.SeverityUnlocalized != "ERROR")
}

// resolve asks what became of a transaction whose commit has failed with an error: nil if it was committed, the error if it was not, and
// ErrInDoubt if that cannot be found out.
func (f fate) resolve(ctx context.Context, pool *pgxpool.Pool, failed error) error {
	if f.number == nil {
		return failed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveWithin) // what is to be found out is worth more than the wait
	defer cancel()
	for {
		var status *string
		var server time.Time
		err := pool.QueryRow(ctx, `SELECT txid_status($1), pg_postmaster_start_time()`, *f.number).Scan(&status, &server)
		switch {
		case err != nil:
		case !server.Equal(f.server) || status == nil:
			return inLine(ErrInDoubt.Error(), ErrInDoubt, failed)
		case *status == "committed":
			return nil
		case *status == "aborted":
			return failed
		}
		select {
		case <-time.After(resolveEvery):
		case <-ctx.Done():
			return inLine(ErrInDoubt.Error(), ErrInDoubt, failed)
		}
	}
}

// alterOnce makes one change in a transaction, and returns the result of change. If the connection ends while it is committed, it finds
// out what became of it.
func alterOnce[T any](ctx context.Context, pool *pgxpool.Pool, change func(context.Context, pgx.Tx) (T, error)) (answer T, err error) {
	var of fate
	made := false
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		if err = noteActor(ctx, tx); err != nil {
			return err
		}
		if answer, err = change(ctx, tx); err != nil {
			return err
		}
		of, err = fateOf(ctx, tx)
		made = err == nil
		return err
	})
	if made && inDoubt(err) {
		err = of.resolve(ctx, pool, err)
	}
	if err != nil {
		return *new(T), err
	}
	return answer, nil
}
