package embedded

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCommandsAreCountedHoweverTheyAreCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire strings.Builder
		commands := rapid.IntRange(0, 8).Draw(t, "commands")
		for range commands {
			words := rapid.SliceOfN(rapid.StringMatching(`[*$0-9a\r\n]{0,12}`), 1, 4).Draw(t, "words")
			fmt.Fprintf(&wire, "*%d\r\n", len(words))
			for _, word := range words {
				fmt.Fprintf(&wire, "$%d\r\n%s\r\n", len(word), word)
			}
		}
		var r requestCounter
		counted := int64(0)
		for rest := []byte(wire.String()); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "read")
			counted += r.count(rest[:n])
			rest = rest[n:]
		}
		if counted != int64(commands) {
			t.Fatalf("%d of %d commands counted", counted, commands)
		}
	})
}
