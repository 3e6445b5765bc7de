package harness

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// databaseTimeout bounds the making and the dropping of one database.
const databaseTimeout = 20 * time.Second

// Database creates an empty database on the shared PostgreSQL and returns its URL. It is dropped when the test
// ends, with whoever is still connected.
func Database(t testing.TB) string {
	t.Helper()
	server := PostgresDSN(t)
	dsn, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s must be a URL such as postgres://pacer@127.0.0.1:5432/pacer", envPostgres)
	}
	name := "test_" + randomHex()
	if err := execute(server, `CREATE DATABASE `+name); err != nil {
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

// execute runs one statement over a connection of its own.
func execute(dsn, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	return err
}
