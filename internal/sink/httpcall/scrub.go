package httpcall

import (
	"cmp"
	"encoding/base64"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// minSecret is the least length of a configured value that is removed from details, in bytes. A shorter one, such as a version in a
// header, is no secret, and occurs in addresses and numbers.
const minSecret = 8

// CredentialsOf returns the user and the password of an address, as the header of Basic authentication has them first; nil if it has none.
func CredentialsOf(u *url.URL) []string {
	if u.User == nil {
		return nil
	}
	password, _ := u.User.Password()
	return []string{base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password)), u.User.String(), password}
}

// QueryOf returns the query of an address, and the values in it.
func QueryOf(u *url.URL) []string {
	return append(slices.Concat(slices.Collect(maps.Values(u.Query()))...), u.RawQuery)
}

// partsOf returns what of an address may let those who know it send: its query, its path, and names of the path that are as long as a key.
func partsOf(u *url.URL) []string {
	parts := append(QueryOf(u), u.Path, u.EscapedPath())
	for name := range strings.SplitSeq(u.Path, "/") {
		if len(name) >= 2*minSecret {
			parts = append(parts, name)
		}
	}
	return parts
}

// Scrubber replaces every secret by asterisks, also in the spellings of a URL and of JSON.
func Scrubber(secrets []string) *strings.Replacer {
	var all []string
	for _, s := range secrets {
		if len(s) >= minSecret {
			all = append(all, s, url.PathEscape(s), url.QueryEscape(s), strings.ReplaceAll(s, "/", `\/`))
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may contain another
	pairs := make([]string, 0, 2*len(all))
	for _, s := range all {
		pairs = append(pairs, s, "***")
	}
	return strings.NewReplacer(pairs...)
}
