// Command reference writes the dashboard of deploy/grafana or, with -package, the man pages and completions of packages.
package main

import (
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
		return os.WriteFile("deploy/grafana/dashboards/pacer.json", board, 0o600)
	}
	if *dir != "" {
		write = func() error { return packageFiles(*dir) }
	}
	if err := write(); err != nil {
		log.Fatal(err)
	}
}
