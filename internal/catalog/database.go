package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	connectTimeout = 5 * time.Second
	// queryTimeout bounds every operation that has no tighter bound of its own.
	queryTimeout = 5 * time.Second
)

// database opens its pool at the first use, so that whoever holds one can be made without I/O and works before,
// during and after Run. Close it once.
type database struct {
	config *pgxpool.Config

	mu     sync.Mutex // guards open and closed
	open   *pgxpool.Pool
	closed bool
}

// newDatabase parses the DSN and does nothing else. Its errors never repeat the DSN: it may hold a password, and a
// DSN that cannot be parsed cannot be redacted either.
func newDatabase(dsn, application string) (*database, error) {
	if dsn == "" {
		return nil, invalid("postgres.dsn is missing; set it to a URL such as postgres://pacer@127.0.0.1:5432/pacer")
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, invalid("postgres.dsn cannot be read; use a URL such as postgres://pacer@127.0.0.1:5432/pacer " +
			"(special characters of a password as %%40 and the like)")
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = application
	}
	return &database{config: config}, nil
}

// pool returns the pool, opening it if need be.
func (d *database) pool() (*pgxpool.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errors.New("the catalog is closed")
	case d.open != nil:
		return d.open, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), d.config.Copy()) // dials in the background only
	if err != nil {
		return nil, fmt.Errorf("open the pool of connections: %w", err)
	}
	d.open = pool
	return pool, nil
}

// close ends all connections; later calls of pool fail.
func (d *database) close() {
	d.mu.Lock()
	pool := d.open
	d.open, d.closed = nil, true
	d.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}

// Errors that callers tell apart.
var (
	// ErrSchema means that the database lacks tables or columns that this pacer needs.
	ErrSchema = errors.New("the database schema is missing or older than this pacer; run: pacer migrate up")
	// ErrNotFound means that the named campaign or quota does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInvalid means that the input cannot be used as it is.
	ErrInvalid = errors.New("invalid input")
	// ErrUnreachable means that no connection to the database could be made.
	ErrUnreachable = errors.New("the database cannot be reached")
)

// lineError is one line for a person, together with the sentinel and the cause for errors.Is and errors.As.
type lineError struct {
	line  string
	kind  error // may be nil
	cause error // may be nil
}

func (e *lineError) Error() string { return e.line }

func (e *lineError) Unwrap() []error {
	var chain []error
	if e.kind != nil {
		chain = append(chain, e.kind)
	}
	if e.cause != nil {
		chain = append(chain, e.cause)
	}
	return chain
}

// invalid is bad input, in one line.
func invalid(format string, args ...any) error {
	return &lineError{line: fmt.Sprintf(format, args...), kind: ErrInvalid}
}

// notFound says that a campaign or a quota does not exist.
func notFound(format string, args ...any) error {
	return &lineError{line: fmt.Sprintf(format, args...), kind: ErrNotFound}
}

// explain turns what the driver reports into one line that a person can act on. Errors that are not the
// database's are returned as they are.
func explain(err error) error {
	var connect *pgconn.ConnectError
	var server *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &connect):
		line := fmt.Sprintf("postgres.dsn: cannot connect to %s:%d as %s, database %s: %s",
			connect.Config.Host, connect.Config.Port, connect.Config.User, connect.Config.Database, leaf(err))
		return &lineError{line: line, kind: ErrUnreachable, cause: err}
	case errors.As(err, &server):
		return explainServer(server, err)
	}
	return err
}

// explainServer explains a refusal of the server: its message and its hint, without codes.
func explainServer(server *pgconn.PgError, cause error) error {
	switch server.Code {
	case "42P01", "42703", "42883", "3F000": // undefined table, column, function; no such schema
		return &lineError{line: ErrSchema.Error(), kind: ErrSchema, cause: cause}
	}
	line := server.Message
	if server.Hint != "" {
		line += ": " + server.Hint
	}
	var kind error
	if class := server.Code[:min(2, len(server.Code))]; class == "22" || class == "23" { // data, constraints
		kind = ErrInvalid
	}
	return &lineError{line: line, kind: kind, cause: cause}
}

// leaf is the innermost cause of err, the last one where there are several: of all the addresses that were tried,
// the last tells what is wrong.
func leaf(err error) string {
	for {
		var next error
		switch e := err.(type) { //nolint:errorlint // walks the chain itself
		case *pgconn.PgError:
			return e.Message
		case interface{ Unwrap() error }:
			next = e.Unwrap()
		case interface{ Unwrap() []error }:
			if all := e.Unwrap(); len(all) > 0 {
				next = all[len(all)-1]
			}
		}
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
