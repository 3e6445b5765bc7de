package delivery

import (
	"encoding/base64"
	"unique"
)

// TopicID is Kafka's id of a topic. A topic that is deleted and made anew has another one. The zero value is an id that
// is not known. Two are the same if they are equal.
type TopicID struct{ bytes unique.Handle[[16]byte] }

// NewTopicID returns the id with these bytes; zeros stand for none.
func NewTopicID(b [16]byte) TopicID {
	if b == ([16]byte{}) {
		return TopicID{}
	}
	return TopicID{unique.Make(b)}
}

// ParseTopicID parses the output of String. For any other text it returns an unknown id.
func ParseTopicID(s string) TopicID {
	var b [16]byte
	if base64.RawURLEncoding.DecodedLen(len(s)) != len(b) {
		return TopicID{}
	}
	if _, err := base64.RawURLEncoding.Decode(b[:], []byte(s)); err != nil {
		return TopicID{}
	}
	return NewTopicID(b)
}

// Known reports whether the id is known.
func (t TopicID) Known() bool { return t != TopicID{} }

// String spells the id as Kafka's tools do, in 22 characters; "" if it is not known.
func (t TopicID) String() string {
	if !t.Known() {
		return ""
	}
	b := t.bytes.Value()
	return base64.RawURLEncoding.EncodeToString(b[:])
}
