// Package migrations holds the database schema as numbered SQL files. They are append-only: a file that has been
// released is never edited, and each can be taken back by its Down half.
package migrations

import "embed"

// FS holds the migrations, at its root.
//
//go:embed *.sql
var FS embed.FS
