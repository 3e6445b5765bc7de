// Command reference writes what is made from the commands of pacer: docs/reference/commands.md, or with -package what packages contain
// beside the program.
package main

import (
	"flag"
	"log"
	"os"

	"github.com/pacer/pacer/internal/command"
)

func main() {
	dir := flag.String("package", "", "write man pages and completions into this folder")
	flag.Parse()
	write := func() error { return os.WriteFile("docs/reference/commands.md", command.Reference(), 0o600) }
	if *dir != "" {
		write = func() error { return command.PackageFiles(*dir) }
	}
	if err := write(); err != nil {
		log.Fatal(err)
	}
}
