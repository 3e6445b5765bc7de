package telegram

import (
	"testing"
	"time"
)

func TestFlood(t *testing.T) {
	begun := time.Unix(1_700_000_000, 0)
	type refused struct {
		chat string
		at   time.Duration
		want bool
	}
	for name, steps := range map[string][]refused{
		"one chat, however often":    {{"a", 0, false}, {"a", 1, false}, {"a", 2, false}, {"a", 3, false}},
		"two chats, in turn":         {{"a", 0, false}, {"b", 1, false}, {"a", 2, false}, {"b", 3, false}},
		"three at once":              {{"a", 0, false}, {"b", 0, false}, {"c", 0, true}},
		"three within the second":    {{"a", 0, false}, {"b", 500 * time.Millisecond, false}, {"c", time.Second, true}},
		"three, too far apart":       {{"a", 0, false}, {"b", 500 * time.Millisecond, false}, {"c", time.Second + 1, false}},
		"and the next ones":          {{"a", 0, false}, {"b", 1, false}, {"c", 2, true}, {"d", 3, true}, {"a", 4, true}, {"b", time.Hour, false}},
		"a chat counts at its last":  {{"a", 0, false}, {"b", 900 * time.Millisecond, false}, {"a", time.Second, false}, {"c", 1800 * time.Millisecond, true}},
		"a busy chat among the slow": {{"a", 0, false}, {"b", 2 * time.Second, false}, {"b", 3 * time.Second, false}, {"c", 3 * time.Second, false}, {"a", 5 * time.Second, false}},
	} {
		f := floodWait{}
		for i, s := range steps {
			if got := f.refused(s.chat, begun.Add(s.at)); got != s.want {
				t.Errorf("%s: step %d: %t", name, i+1, got)
			}
		}
	}
}
