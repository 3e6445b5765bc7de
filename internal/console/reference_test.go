package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

const apiHead = `# API

Generated from [openapi.json](../openapi.json) by ` + "`make reference`" + `, which a running process serves as ` + "`/api/v1/openapi.json`" + `. All paths
begin with ` + "`/api/v1`" + `. [console.md](../console.md#api) has examples, and says who has which role.

`

// operations is an OpenAPI document as far as the page shows it.
type operations struct {
	Info       struct{ Description string }
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	Summary    string
	Role       string `json:"x-pacer-role"`
	Parameters []struct {
		Name, In, Description string
		Schema                schema
	}
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref              string `json:"$ref"`
	Type             any
	Format           string
	Description      string
	Enum             []any
	Meanings         []string `json:"x-enum-descriptions"`
	Default          any
	Minimum, Maximum *float64
	Items            *schema
	AnyOf            []schema
	Properties       map[string]schema
	Required         []string
}

// kind is the type of a value, with a link to that of an object.
func (s schema) kind() string {
	switch name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]; {
	case name != "":
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case len(s.AnyOf) > 0: // a value, or with fields a part of it
		return s.AnyOf[0].kind()
	case len(s.Meanings) > 0:
		return "one of [these](#problems)"
	case len(s.Enum) > 0:
		return strings.Join(quoted(s.Enum), ", ")
	case s.Format == "date-time":
		return "instant"
	}
	if list, ok := s.Type.([]any); ok {
		return fmt.Sprint(list[0])
	}
	return fmt.Sprint(s.Type)
}

func quoted(values []any) (list []string) {
	for _, v := range values {
		list = append(list, fmt.Sprintf("`%v`", v))
	}
	return list
}

// about is what the document says of a value.
func (s schema) about(said string) string {
	if s.Default != nil {
		said = strings.TrimPrefix(fmt.Sprintf("%s; by default `%v`", said, s.Default), "; ")
	}
	if s.Maximum != nil {
		said = strings.TrimPrefix(fmt.Sprintf("%s; at most %v", said, *s.Maximum), "; ")
	}
	return said
}

func (o operation) write(page *bytes.Buffer, method, path string) {
	fmt.Fprintf(page, "\n### %s %s\n\n%s. Role: %s.\n", strings.ToUpper(method), path, strings.TrimSuffix(o.Summary, "."), o.Role)
	if len(o.Parameters) > 0 {
		page.WriteString("\n| parameter | in | type | meaning |\n| --- | --- | --- | --- |\n")
	}
	for _, p := range o.Parameters {
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", p.Name, p.In, p.Schema.kind(), p.Schema.about(p.Description))
	}
	page.WriteByte('\n')
	for _, media := range slices.Sorted(maps.Keys(o.RequestBody.Content)) {
		fmt.Fprintf(page, "Takes %s as `%s`. ", o.RequestBody.Content[media].Schema.kind(), media)
	}
	var refused []string
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		if status >= "400" {
			refused = append(refused, status)
			continue
		}
		for _, content := range o.Responses[status].Content {
			fmt.Fprintf(page, "Answers %s with %s", status, content.Schema.kind())
		}
	}
	fmt.Fprintf(page, ", or %s.\n", strings.Join(refused, ", "))
}

// TestThePageOfTheAPIIsItsDocument compares docs/reference/api.md with what the console serves as its OpenAPI document.
func TestThePageOfTheAPIIsItsDocument(t *testing.T) {
	_, body, _ := get(t, serve(newWorld()), "/api/v1/openapi.json")
	var document operations
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	page := bytes.NewBufferString(apiHead + document.Info.Description + "\n\n## Operations\n")
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			if o, ok := document.Paths[path][strings.ToLower(method)]; ok {
				o.write(page, method, path)
			}
		}
	}
	page.WriteString("\n## Problems\n\nWhat `type` of an answer of `application/problem+json` may be. Kinds are added, but none is renamed: take one that is not known for its status.\n\n| type | meaning |\n| --- | --- |\n")
	kinds := document.Components.Schemas["ErrorModel"].Properties["type"]
	for i, kind := range kinds.Enum {
		fmt.Fprintf(page, "| `%v` | %s |\n", kind, kinds.Meanings[i])
	}
	page.WriteString("\n## Objects\n\nMembers in bold are always there.\n")
	for _, name := range slices.Sorted(maps.Keys(document.Components.Schemas)) {
		s := document.Components.Schemas[name]
		if strings.HasPrefix(name, "PartOf") { // its members are those of the whole
			continue
		}
		fmt.Fprintf(page, "\n### %s\n\n| member | type | meaning |\n| --- | --- | --- |\n", name)
		for _, member := range slices.Sorted(maps.Keys(s.Properties)) {
			of, bold := s.Properties[member], ""
			if slices.Contains(s.Required, member) {
				bold = "**"
			}
			fmt.Fprintf(page, "| %s`%s`%s | %s | %s |\n", bold, member, bold, of.kind(), of.about(of.Description))
		}
	}
	const committed = "../../docs/reference/api.md"
	if *update {
		if err := os.WriteFile(committed, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(committed); err != nil || !bytes.Equal(text, page.Bytes()) {
		t.Errorf("docs/reference/api.md is not what the console serves (%v); run make reference", err)
	}
}
