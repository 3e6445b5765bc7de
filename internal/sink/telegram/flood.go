package telegram

import (
	"hash/maphash"
	"time"
)

// floodWait reports whether the service holds back one chat or the whole bot: it answers both alike, with 429. Of chats alone,
// several would have to be held back within a second by chance.
//
// The zero value has seen none. It is not safe for concurrent use.
type floodWait struct {
	last [enough]refusal
}

// refusal is the last one of a chat.
type refusal struct {
	chat uint64 // a hash
	at   time.Time
}

const (
	enough = 3 // chats
	within = time.Second
)

var seed = maphash.MakeSeed()

// refused notes that a request to a chat was answered with 429 at now. ofBot reports whether that is about all chats.
func (f *floodWait) refused(chat string, now time.Time) (ofBot bool) {
	id := maphash.String(seed, chat)
	place := 0
	for i := range f.last {
		if f.last[i].chat == id {
			place = i
			break
		}
		if f.last[i].at.Before(f.last[place].at) {
			place = i
		}
	}
	f.last[place] = refusal{id, now}
	for _, r := range f.last {
		if r.at.IsZero() || now.Sub(r.at) > within {
			return false
		}
	}
	return true
}
