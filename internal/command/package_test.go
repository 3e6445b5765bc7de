package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The service of a package begins with the program and the configuration of the package, and the configuration is valid.
func TestThePackagedServiceFindsItsFiles(t *testing.T) {
	drop, err := os.ReadFile("../../deploy/package/package.conf")
	if err != nil {
		t.Fatal(err)
	}
	if want := "ExecStart=\nExecStart=/usr/bin/pacer run --config /etc/pacer/pacer.yaml\n"; !strings.Contains(string(drop), want) {
		t.Errorf("package.conf is\n%s", drop)
	}
	file, err := filepath.Abs("../../deploy/package/pacer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := execute(t, nil, "config", "print", "--config", file); code != 0 || stderr != "" {
		t.Errorf("code %d, %s", code, stderr)
	}
}
