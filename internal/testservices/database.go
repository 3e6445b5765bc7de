package testservices

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Database creates an empty database on the shared PostgreSQL and returns its URL. It is dropped when the test ends,
// even if connections are open.
func Database(t testing.TB) string {
	t.Helper()
	return DatabaseFrom(t, "template1")
}

// DatabaseFrom is Database with a copy of a template, another database of the server. The template must have no connections.
func DatabaseFrom(t testing.TB, template string) string {
	t.Helper()
	server, name := PostgresDSN(t), "test_"+randomHex()
	dsn, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s must be a URL such as postgres://pacer@127.0.0.1:5432/pacer", envPostgres)
	}
	if err := execute(server, `CREATE DATABASE `+name+` TEMPLATE `+template+` STRATEGY FILE_COPY`); err != nil {
		t.Fatalf("create database %s: %v: %s", name, err, remedy)
	}
	t.Cleanup(func() {
		if err := execute(server, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	dsn.Path = "/" + name
	return dsn.String()
}

// Template is a database that is filled once, for all tests of a program. Each of them gets a copy, which takes a fraction of
// the time that filling takes.
type Template struct {
	fill func(ctx context.Context, dsn string) error
	mu   sync.Mutex
	made *lasting // under mu; nil: not yet
	name string   // under mu
}

// NewTemplate makes a template that fill fills when the first test asks for a copy.
func NewTemplate(fill func(ctx context.Context, dsn string) error) *Template {
	return &Template{fill: fill}
}

// Database is a copy that is dropped when the test ends.
func (d *Template) Database(t testing.TB) string {
	t.Helper()
	return DatabaseFrom(t, d.filled(t))
}

// Drop removes what was filled, once no test is left.
func (d *Template) Drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made != nil {
		d.made.drop()
	}
	d.made = nil
}

func (d *Template) filled(t testing.TB) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made != nil {
		return d.name
	}
	made := &lasting{TB: t}
	dsn := Database(made)
	if err := d.fill(t.Context(), dsn); err != nil {
		made.drop()
		t.Fatalf("fill database %s: %v", dsn, err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	d.made, d.name = made, strings.TrimPrefix(u.Path, "/")
	return d.name
}

// lasting stands in for a test whose database outlives it.
type lasting struct {
	testing.TB
	drop func()
}

func (l *lasting) Cleanup(f func()) { l.drop = f }

func (*lasting) Errorf(string, ...any) {} // of dropping it: no test is left to fail

// execute runs one statement over its own connection.
func execute(dsn, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	return err
}
