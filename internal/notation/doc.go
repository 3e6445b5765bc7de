// Package notation reads and writes what people and files say in words: rates (150/m), lengths of time (7d), windows (300/1m), sizes
// (64MiB), active hours, ramps, names of topics. Each has one grammar for flags, files, the environment and the catalog. Formatted values
// parse to the same value. Bounds that belong to the field and not to its grammar are for the caller to check.
package notation

import "strings"

// Shorten cuts text that is repeated in a message, so that the message stays within a line.
func Shorten(text string) string { return shortenTo(text, 64) }

func shortenTo(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..." // a character that is cut is left out
	}
	return text
}
