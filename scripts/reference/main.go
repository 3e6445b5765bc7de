// Command reference writes what is made from the program: docs/reference/commands.md and the dashboard of deploy/grafana, or with
// -package what packages contain beside the program.
package main

import (
	"errors"
	"flag"
	"log"
	"os"
)

func main() {
	dir := flag.String("package", "", "write man pages and completions into this folder")
	flag.Parse()
	write := func() error {
		board, err := dashboard()
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile("docs/reference/commands.md", commands(), 0o600),
			os.WriteFile("deploy/grafana/dashboards/pacer.json", board, 0o600))
	}
	if *dir != "" {
		write = func() error { return packageFiles(*dir) }
	}
	if err := write(); err != nil {
		log.Fatal(err)
	}
}
