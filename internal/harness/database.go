package harness

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Database creates an empty database on the shared PostgreSQL and returns its URL. It is dropped when the test ends,
// even if connections are open.
func Database(t testing.TB) string {
	t.Helper()
	return DatabaseFrom(t, "template1")
}

// DatabaseFrom is Database with a copy of a template, another database of the server to which nothing is connected.
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
