package catalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Actor is the user behind a program's change, with the reason. It is kept beside the change; the role of the database, which cannot be
// chosen, is as well.
type Actor struct{ Name, Reason, RequestID string }

type actorKey struct{}

// WithActor returns a context whose changes are recorded as the actor's.
func WithActor(ctx context.Context, by Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, by)
}

// ActorOf returns the actor of a context; the zero value if it has none.
func ActorOf(ctx context.Context) Actor {
	by, _ := ctx.Value(actorKey{}).(Actor)
	return by
}

// noteActor tells the transaction whose it is.
func noteActor(ctx context.Context, tx pgx.Tx) error {
	by := ActorOf(ctx)
	if by == (Actor{}) {
		return nil
	}
	_, err := tx.Exec(ctx, `SELECT set_config('pacer.actor', $1, true), set_config('pacer.reason', $2, true),
    set_config('pacer.request_id', $3, true)`, by.Name, by.Reason, by.RequestID)
	return err
}

// ReadOnly says in one line why the role of the database may not change campaigns; "" if it may.
func (a *Admin) ReadOnly(ctx context.Context) (why string, err error) {
	var role string
	var may bool
	err = a.database.do(ctx, "", func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, `SELECT current_user::text, has_table_privilege('pacer.campaigns', 'UPDATE')`).Scan(&role, &may)
	})
	if err != nil || may {
		return "", err
	}
	return fmt.Sprintf("the database role %s of this process may not change campaigns; use a process with the role of operators, such as pacer console", role), nil
}
