// Command sbom writes what a program was built from, as a software bill of materials: CycloneDX 1.6, JSON. It reads only the program, in
// which Go notes each module with its version and checksum, so that it needs no network, and the same program gives the same document.
//
//	sbom -version 1.2.3 PROGRAM DOCUMENT
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
)

func main() {
	version := flag.String("version", "", "of the program; as Go notes it unless given")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: sbom -version 1.2.3 PROGRAM DOCUMENT")
	}
	if err := run(flag.Arg(0), flag.Arg(1), *version); err != nil {
		log.Fatal(err)
	}
}

func run(program, to, version string) error {
	content, err := os.ReadFile(program) // #nosec G304 G703 -- it is an argument
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read what the program was built from: %w", err)
	}
	info.Main.Version = cmp.Or(version, info.Main.Version)
	sum := sha256.Sum256(content)
	document, err := json.MarshalIndent(describe(info, hex.EncodeToString(sum[:])), "", "  ")
	if err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return os.WriteFile(to, append(document, '\n'), 0o644) // #nosec G306 G703 -- it is published
}

// document is a bill of materials, as far as it is made here.
type document struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp,omitempty"` // of the commit: the same program gives the same document
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// describe makes the document. Go does not note which module needs which: all are listed as needed by the program.
func describe(info *debug.BuildInfo, sum string) document {
	program := of(&info.Main)
	program.Type, program.Hashes = "application", []hash{{"SHA-256", sum}}
	d := document{Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.time":
			d.Metadata.Timestamp = s.Value
		case "GOOS", "GOARCH", "CGO_ENABLED", "vcs.revision", "vcs.modified":
			program.Properties = append(program.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	d.Metadata.Component = program
	needs := dependency{Ref: program.Ref}
	for _, m := range append([]*debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		one := of(m)
		d.Components = append(d.Components, one)
		needs.DependsOn = append(needs.DependsOn, one.Ref)
	}
	d.Dependencies = []dependency{needs}
	return d
}

// of is a module.
func of(m *debug.Module) component {
	purl := "pkg:golang/" + strings.ToLower(m.Path)
	if m.Version != "" {
		purl += "@" + url.QueryEscape(m.Version)
	}
	c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}
