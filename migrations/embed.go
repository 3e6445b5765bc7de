// Package migrations holds the database schema as numbered SQL files. They are append-only: a file that has been
// released is never edited. Migrations only add, so daemons work on a newer schema.
package migrations

import "embed"

// FS holds the migrations, at its root.
//
//go:embed *.sql
var FS embed.FS
