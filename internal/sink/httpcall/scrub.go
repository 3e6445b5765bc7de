package httpcall

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// minSecret is the least length of a configured value that is removed from details, in bytes. A shorter one, such as a version in a
// header, is no secret, and occurs in addresses and numbers.
const minSecret = 8

// Scrubber replaces every secret by asterisks, also in the spellings of a URL.
func Scrubber(secrets []string) *strings.Replacer {
	var all []string
	for _, s := range secrets {
		if len(s) >= minSecret {
			all = append(all, s, url.PathEscape(s), url.QueryEscape(s))
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may contain another
	pairs := make([]string, 0, 2*len(all))
	for _, s := range all {
		pairs = append(pairs, s, "***")
	}
	return strings.NewReplacer(pairs...)
}
