package catalog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	connectTimeout = 5 * time.Second
	// queryTimeout bounds every operation of a daemon, and changeTimeout those of people, which may wait for each other.
	queryTimeout  = 5 * time.Second
	changeTimeout = 10 * time.Second
	// daemonApplication is the application_name of the sessions of daemons.
	daemonApplication = "pacer"
)

// database opens its pool at the first use, so that its owner can be made without I/O and works before, during and
// after Run. Close it once.
type database struct {
	application string
	limit       time.Duration // of one operation
	config      *pgxpool.Config
	renew       Renewal

	mu     sync.Mutex // guards open and closed
	open   *pgxpool.Pool
	closed bool
}

// Renewal is how the DSN of new connections changes while a program runs.
type Renewal struct {
	// DSN, if set, returns the current one. The files that it names are read for each connection. One that cannot be
	// used changes nothing.
	DSN func() string
	// Encrypted, if set, is called with the state of each encrypted connection.
	Encrypted func(tls.ConnectionState)
}

// newDatabase makes a database; an error is one line about postgres.dsn.
func newDatabase(dsn, application string, limit time.Duration, renew Renewal) (*database, error) {
	d := &database{application: application, limit: limit, renew: renew}
	var err error
	if d.config, err = d.parse(dsn); err != nil {
		return nil, err
	}
	d.config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		*config = *d.target()
		return nil
	}
	return d, nil
}

// parse parses a DSN. Its errors never repeat the DSN, which may contain a password; a DSN that cannot be parsed cannot
// be redacted either.
func (d *database) parse(dsn string) (*pgxpool.Config, error) {
	if err := CheckDSN(dsn); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, unreadableDSN()
	}
	config.AfterConnect = readInUTC
	to := config.ConnConfig
	if to.ConnectTimeout == 0 {
		to.ConnectTimeout = connectTimeout
	}
	if !strings.Contains(dsn, "default_query_exec_mode") {
		// Statements with names stay in a session, which a pooler in transaction mode exchanges.
		to.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if _, ok := to.RuntimeParams["application_name"]; !ok {
		to.RuntimeParams["application_name"] = d.application
	}
	d.observe(to.TLSConfig)
	for _, fallback := range to.Fallbacks {
		d.observe(fallback.TLSConfig)
	}
	return config, nil
}

// readInUTC has times read in UTC, as they are shown, and not in the zone of this process.
func readInUTC(_ context.Context, conn *pgx.Conn) error {
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	return nil
}

// observe reports the connections that are made with the configuration.
func (d *database) observe(encryption *tls.Config) {
	if encryption != nil && d.renew.Encrypted != nil {
		encryption.VerifyConnection = func(state tls.ConnectionState) error {
			d.renew.Encrypted(state)
			return nil
		}
	}
}

// target returns a copy of where, and as whom, to connect now.
func (d *database) target() *pgx.ConnConfig {
	if d.renew.DSN != nil {
		if config, err := d.parse(d.renew.DSN()); err == nil {
			return config.ConnConfig
		}
	}
	return d.config.ConnConfig.Copy()
}

// CheckDSN returns an error of one line unless the DSN can be used with the files that it names.
func CheckDSN(dsn string) error {
	if dsn == "" {
		return invalid("postgres.dsn is missing; set it to a URL such as postgres://pacer@127.0.0.1:5432/pacer")
	}
	_, err := pgx.ParseConfig(dsn)
	if err == nil {
		return nil
	}
	var file *fs.PathError
	if errors.As(err, &file) {
		return invalid("postgres.dsn: cannot read the file that it names: %s", file)
	}
	// These quote nothing of the DSN.
	if cause := errors.Unwrap(err); cause != nil && strings.Contains(err.Error(), "failed to configure TLS") {
		return invalid("postgres.dsn: %s; look at sslmode, sslrootcert, sslcert and sslkey", cause)
	}
	return unreadableDSN()
}

func unreadableDSN() error {
	return invalid("postgres.dsn: not a connection string; use a URL such as postgres://pacer@127.0.0.1:5432/pacer " +
		"(special characters of a password as %%40 and the like)")
}

// connect opens a connection of its own. The error is one line.
func (d *database) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, d.target())
	return conn, explain(err)
}

// closeConn closes the connection within a second, although ctx may have ended: until then the server keeps the locks of the session.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server notices in any case
}

// connected runs one operation with a connection of its own, within the limit.
func (d *database) connected(ctx context.Context, operate func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	return explain(operate(ctx, conn))
}

// pool returns the pool, and opens it at the first call.
func (d *database) pool() (*pgxpool.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errors.New("the catalog is closed")
	case d.open != nil:
		return d.open, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), d.config.Copy()) // connects in the background only
	if err != nil {
		return nil, fmt.Errorf("open the pool of connections: %w", err)
	}
	d.open = pool
	return pool, nil
}

// close closes all connections; later calls of pool fail.
func (d *database) close() {
	d.mu.Lock()
	pool := d.open
	d.open, d.closed = nil, true
	d.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}

// do runs one operation within the limit. Its error says what the operation was, unless that is "", and what the remedy is.
func (d *database) do(ctx context.Context, what string, operate func(context.Context, *pgxpool.Pool) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	within := time.Until(deadline).Round(10 * time.Millisecond)
	pool, err := d.pool()
	if err == nil {
		err = operate(ctx, pool)
	}
	if !errors.Is(err, ErrInDoubt) {
		err = explain(err)
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnreachable) {
			err = inLine(fmt.Sprintf("the database did not answer within %s; is it overloaded, or does an open transaction hold what is to be changed?",
				within), err)
		}
	}
	if err != nil && what != "" {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// read is do for an operation with a result, which is the zero value after an error.
func read[T any](ctx context.Context, d *database, what string, operate func(context.Context, *pgxpool.Pool) (T, error)) (answer T, err error) {
	err = d.do(ctx, what, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		answer, err = operate(ctx, pool)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return answer, nil
}

// list runs one query and converts its rows.
func list[T any](ctx context.Context, d *database, what string, convert pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	return read(ctx, d, what, func(ctx context.Context, pool *pgxpool.Pool) ([]T, error) {
		rows, _ := pool.Query(ctx, sql, args...) // reading the rows returns its error
		return pgx.CollectRows(rows, convert)
	})
}

// only returns the first of the rows, or the error; missing if there are none.
func only[T any](rows []T, err, missing error) (row T, _ error) {
	switch {
	case err != nil:
		return row, err
	case len(rows) == 0:
		return row, missing
	}
	return rows[0], nil
}

// querier is the part of a pool, a connection or a transaction that reading needs.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// column returns one value of each row, for unnest.
func column[R, V any](rows []R, value func(R) V) []V {
	values := make([]V, len(rows))
	for i, row := range rows {
		values[i] = value(row)
	}
	return values
}

// lastOfEach returns a copy of the rows, ordered by their keys, with only the last row of each key. Daemons that write
// at the same time then lock rows in the same order and cannot deadlock.
func lastOfEach[R any](rows []R, compare func(a, b R) int) []R {
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, compare)
	kept := sorted[:0]
	for i, row := range sorted {
		if i+1 == len(sorted) || compare(row, sorted[i+1]) != 0 {
			kept = append(kept, row)
		}
	}
	return kept
}

// Errors that callers distinguish.
var (
	// ErrSchema means that the database lacks tables or columns that this pacer needs.
	ErrSchema = errors.New("the database schema is missing or older than this pacer; run: pacer migrate up")
	// ErrNotFound means that the named campaign, quota, window, destination or change does not exist.
	ErrNotFound = errors.New("not found")
	// ErrStale means that the row has changed since it was read.
	ErrStale = errors.New("changed meanwhile")
	// ErrOver means that a campaign is cancelled or completed, and stays so.
	ErrOver = errors.New("over")
	// ErrExists means that what was to be created exists; it is an ErrInvalid as well.
	ErrExists = errors.New("exists already")
	// ErrInvalid means that the input cannot be used as it is.
	ErrInvalid = errors.New("invalid input")
	// ErrForbidden means that the role of the database may not make the change.
	ErrForbidden = errors.New("forbidden")
	// ErrUnreachable means that no connection to the database could be made.
	ErrUnreachable = errors.New("the database cannot be reached")
)

// lineError is an error of one line, with its kind and its cause, if any, for errors.Is and errors.As.
type lineError struct {
	line  string
	chain []error
}

func (e *lineError) Error() string { return e.line }

func (e *lineError) Unwrap() []error { return e.chain }

// inLine returns an error of one line.
func inLine(line string, chain ...error) error { return &lineError{line, chain} }

// Fault returns an error of one line, of a kind.
func Fault(kind error, format string, args ...any) error {
	return inLine(fmt.Sprintf(format, args...), kind)
}

// invalid returns an ErrInvalid of one line.
func invalid(format string, args ...any) error { return Fault(ErrInvalid, format, args...) }

// explain converts an error of the driver to one line that says what to do. Other errors are returned as they are.
func explain(err error) error {
	var connect *pgconn.ConnectError
	var server *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &connect):
		line := fmt.Sprintf("postgres.dsn: cannot connect to %s:%d as %s, database %s: %s",
			connect.Config.Host, connect.Config.Port, connect.Config.User, connect.Config.Database, leaf(err))
		return inLine(line, ErrUnreachable, err)
	case errors.As(err, &server):
		return explainServer(server, err)
	}
	return err
}

// explainServer converts an error of the server: its message and its hint, without codes.
func explainServer(server *pgconn.PgError, cause error) error {
	switch server.Code {
	case "42P01", "42703", "42883", "3F000": // undefined table, column, function; no such schema
		return inLine(ErrSchema.Error(), ErrSchema, cause)
	}
	line := withHint(server.Message, server.Hint)
	if strings.HasPrefix(server.Code, "57P") { // it is being stopped or started
		return inLine(line, ErrUnreachable, cause)
	}
	if class := server.Code[:min(2, len(server.Code))]; class == "22" || class == "23" { // data, constraints
		return inLine(line, ErrInvalid, cause)
	}
	return inLine(line, cause)
}

// withHint joins a message of the server and its hint, if it has one.
func withHint(message, hint string) string {
	if hint == "" {
		return message
	}
	return message + ": " + hint
}

// leaf returns the innermost cause of err, the last one if there are several: of all the addresses that were tried,
// the last has the most useful error.
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
