package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// formats reads and writes JSON, and nothing else.
func formats() map[string]huma.Format {
	strict := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: decode}
	return map[string]huma.Format{"application/json": strict, "json": strict}
}

var errNotUTF8 = errors.New("a text is not UTF-8")

// decode reads the body of a request. It refuses invalid UTF-8, which encoding/json would replace. It refuses null, which huma takes for
// an absent member: in a merge patch, null removes a member, and no member can be removed.
func decode(body []byte, into any) error {
	if !utf8.Valid(body) {
		return errNotUTF8
	}
	if err := json.Unmarshal(body, into); err != nil {
		return err //nolint:wrapcheck // it is shown as it is
	}
	if value, ok := into.(*any); ok { // as huma reads it first, to hold it against the schema
		return checkNull("body", *value)
	}
	return nil
}

// checkNull refuses null in a value, at any depth.
func checkNull(at string, value any) error {
	switch v := value.(type) {
	case nil:
		return fmt.Errorf("%s is null; give a value, or leave it out", at)
	case []any:
		for i, element := range v {
			if err := checkNull(at+"["+strconv.Itoa(i)+"]", element); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, member := range v {
			if err := checkNull(at+"."+name, member); err != nil {
				return err
			}
		}
	}
	return nil
}

// requireMatch makes the document say that an operation takes If-Match. Without it the answer is 428, not 422 as huma's own check says.
func requireMatch(o *huma.Operation) {
	for _, p := range o.Parameters {
		if p.Name == "If-Match" {
			p.Required = true
			p.Schema.Pattern = strings.Replace(p.Schema.Pattern, "^(|", "^(", 1) // an empty one is none
		}
	}
}

// valued refuses parameters without a value that must have one: huma takes them for absent. And those that are no text: PostgreSQL refuses them.
func valued(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		at := ctx.URL()
		query := at.Query()
		for _, p := range ctx.Operation().Parameters {
			if p.In != "query" || !query.Has(p.Name) {
				continue
			}
			wrong := ""
			if query.Get(p.Name) == "" && (p.Schema.Type != huma.TypeString || p.Schema.Format != "" || len(p.Schema.Enum) > 0) {
				wrong = "it is empty; give a value, or leave it out"
			} else if text := strings.Join(query[p.Name], ""); !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
				wrong = "expected one line of UTF-8 without control characters"
			}
			if wrong != "" {
				_ = huma.WriteErr(api, ctx, http.StatusUnprocessableEntity, "validation failed", &huma.ErrorDetail{Message: wrong, Location: "query." + p.Name})
				return
			}
		}
		next(ctx)
	}
}
