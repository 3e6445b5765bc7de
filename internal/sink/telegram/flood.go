package telegram

import (
	"maps"
	"time"
)

const (
	enough = 3 // chats
	within = time.Second
)

// floodWait has when the last refusal of each chat was, as long as it counts. It is not safe for concurrent use.
type floodWait map[string]time.Time

// refused records that a request to a chat was answered with 429 at now. The result ofBot is true if the service holds back the whole
// bot, not one chat. The answers are alike, but several chats are held back within a second only by chance.
func (f floodWait) refused(chat string, now time.Time) (ofBot bool) {
	maps.DeleteFunc(f, func(_ string, at time.Time) bool { return now.Sub(at) > within })
	f[chat] = now
	return len(f) >= enough
}
