package api

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// Chosen are the members of a list that a request asks for: thousands of campaigns are megabytes.
type Chosen struct {
	Fields []string `query:"fields" minItems:"1" maxItems:"64" nullable:"false" doc:"only these members of each, separated by commas; by default all"`
}

// some is a value with the chosen members only. Without names, it has all.
type some[T any] struct {
	value  *T
	fields []string
}

func someOf[T any](list []*T, by []string) []some[T] {
	all := make([]some[T], len(list))
	for i := range list {
		all[i] = some[T]{list[i], by}
	}
	return all
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// MarshalJSON implements json.Marshaler.
func (s some[T]) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(s.value)
	if err != nil || len(s.fields) == 0 {
		return text, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("choose members: %w", err)
	}
	chosen := make(map[string]json.RawMessage, len(s.fields))
	for _, name := range s.fields {
		if value, ok := members[name]; ok {
			chosen[name] = value
		}
	}
	return json.Marshal(chosen)
}

// Schema implements huma.SchemaProvider: all of the value, or with fields any part of it.
func (some[T]) Schema(r huma.Registry) *huma.Schema {
	whole := r.Schema(reflect.TypeFor[T](), true, "")
	name := "PartOf" + path.Base(whole.Ref)
	if r.Map()[name] == nil {
		r.Map()[name] = &huma.Schema{
			Type: huma.TypeObject, Properties: r.SchemaFromRef(whole.Ref).Properties, AdditionalProperties: false,
			Description: "What fields of the request names.",
		}
		r.Map()[name].PrecomputeMessages()
	}
	return &huma.Schema{AnyOf: []*huma.Schema{whole, {Ref: "#/components/schemas/" + name}}}
}

// describeFields makes the document, and so the check of requests, name the members that a list of T has.
func describeFields[T any](api huma.API, path string) {
	document := api.OpenAPI()
	whole := document.Components.Schemas.SchemaFromRef(document.Components.Schemas.Schema(reflect.TypeFor[T](), true, "").Ref)
	names := make([]string, 0, len(whole.Properties))
	for name := range whole.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, p := range document.Paths[path].Get.Parameters {
		if p.Name == "fields" {
			for _, name := range names {
				p.Schema.Items.Enum = append(p.Schema.Items.Enum, name)
			}
			p.Schema.PrecomputeMessages()
		}
	}
}
