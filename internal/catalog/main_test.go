package catalog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/testservices"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		schema.Drop()
		os.Exit(code)
	}))
}

// schema is a database with the schema in it.
var schema = testservices.NewTemplate(func(ctx context.Context, dsn string) error {
	m, err := NewMigrator(dsn)
	if err == nil {
		_, err = m.Up(ctx)
	}
	return err
})

// patience bounds every wait for something that happens in milliseconds on an idle machine.
const patience = 10 * time.Second

const day = notation.Day

// migrated makes a database with the schema in it.
func migrated(t testing.TB) string {
	t.Helper()
	return schema.Database(t)
}

// fresh is for a test beside others: a database with the schema in it, and a connection to it as a person would open one.
func fresh(t *testing.T) (dsn string, conn *pgx.Conn) {
	t.Helper()
	t.Parallel()
	dsn = migrated(t)
	return dsn, connected(t, dsn)
}

// started makes a catalog on dsn, runs it until the test ends, and waits until it is ready.
func started(t testing.TB, options Options) *Postgres {
	t.Helper()
	p := running(t, options)
	eventually(t, "the catalog is ready and listens", func() bool { return p.Ready() && p.listening.Load() })
	return p
}

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try is for calls that give a value, and end the test at an error: row := try(a.GetCampaign(ctx, id))(t).
func try[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return value
	}
}

// equal compares deeply.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// refused is line for the error of a call that gives a value.
func refused(t testing.TB, kind error, words string) func(value any, err error) {
	return func(_ any, err error) {
		t.Helper()
		line(t, err, kind, words)
	}
}

// line checks that an error is of a kind, if one is given, and is one line, without codes.
func line(t testing.TB, err, kind error, words string) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), words) ||
		strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "SQLSTATE") {
		t.Errorf("got %v; want %v with %q", err, kind, words)
	}
}

// value is the value that a query finds.
func value[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (found T) {
	t.Helper()
	must(t, conn.QueryRow(context.Background(), sql, args...).Scan(&found))
	return found
}

// administered is for a test beside others: an Admin of a database of its own.
func administered(t *testing.T) *Admin {
	t.Helper()
	t.Parallel()
	return adminOf(t, migrated(t))
}

func adminOf(t testing.TB, dsn string) *Admin {
	t.Helper()
	a := try(NewAdmin(dsn))(t)
	t.Cleanup(a.Close)
	return a
}

// adminOver is an Admin over the connections of a catalog.
func adminOver(p *Postgres) *Admin { return &Admin{database: p.database} }

// created creates a campaign, edited changes one, and quota creates or changes a quota.
func (a *Admin) created(ctx context.Context, id string, c CampaignChange) (CampaignRow, error) {
	return a.WriteCampaign(ctx, id, &c, Precondition{New: true})
}

func (a *Admin) edited(ctx context.Context, id string, c CampaignChange) (CampaignRow, error) {
	return a.WriteCampaign(ctx, id, &c, Precondition{})
}

func (a *Admin) quota(ctx context.Context, id string, c QuotaChange) (QuotaRow, error) {
	row, err := a.WriteQuota(ctx, id, &c, Precondition{})
	if errors.Is(err, ErrNotFound) {
		row, err = a.WriteQuota(ctx, id, &c, Precondition{New: true})
	}
	if errors.Is(err, ErrExists) { // meanwhile
		row, err = a.WriteQuota(ctx, id, &c, Precondition{})
	}
	return row, err
}

func migrator(t testing.TB, dsn string) *Migrator {
	t.Helper()
	return try(NewMigrator(dsn))(t)
}

// unstarted makes a catalog that does not run.
func unstarted(t testing.TB, options Options) *Postgres {
	t.Helper()
	options.Logger = cmp.Or(options.Logger, slog.New(slog.DiscardHandler))
	p := try(NewPostgres(options))(t)
	t.Cleanup(p.Close)
	return p
}

// loaded has a catalog that does not run read the database: all of it, or what has changed.
func loaded(t testing.TB, p *Postgres, full bool) *delivery.Snapshot {
	t.Helper()
	must(t, p.load(t.Context(), full))
	return p.Snapshot()
}

// running makes a catalog and runs it until the test ends.
func running(t testing.TB, options Options) *Postgres {
	t.Helper()
	p := unstarted(t, options)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

// connected opens a connection as a person would, outside of the catalog.
func connected(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn := try(pgx.Connect(context.Background(), dsn))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// eventually waits until ok, polling: it is for states that nothing announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// source is what the conformance suite and other tests need of a catalog.
type source interface {
	Snapshot() *delivery.Snapshot
	Subscribe() <-chan struct{}
	Ready() bool
	Healthy() error
	Refresh(ctx context.Context)
	SavePositions(ctx context.Context, group string, positions []delivery.Position) error
	LoadPositions(ctx context.Context, group string) ([]delivery.Position, error)
}

// await waits until the snapshot satisfies ok, woken by the subscription alone.
func await(t testing.TB, s source, changed <-chan struct{}, what string, ok func(*delivery.Snapshot) bool) *delivery.Snapshot {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		if snapshot := s.Snapshot(); snapshot != nil && ok(snapshot) {
			return snapshot
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// journal is a log that tests can read.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(s string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), s)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }
