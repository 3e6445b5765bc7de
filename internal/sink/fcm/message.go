package fcm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxMessage bounds a message, in bytes: what is delivered to a device has at most 4,096, and settings of platforms come
// on top of it.
const maxMessage = 32 << 10

// request returns the body of the request for a payload: the message itself, or {"message": …}. The error is about the job,
// and repeats nothing of it.
func request(payload []byte, validateOnly bool) ([]byte, error) {
	if len(payload) > maxMessage {
		return nil, fmt.Errorf("the message is longer than %d bytes", maxMessage)
	}
	var outer map[string]json.RawMessage
	if json.Unmarshal(payload, &outer) != nil || outer == nil {
		return nil, errors.New("the payload is no JSON object; it has to be a message of FCM")
	}
	message := payload
	if inner, ok := outer["message"]; ok {
		if len(outer) > 1 {
			return nil, errors.New("the payload has other keys beside message; leave them out")
		}
		message = inner
	}
	if message = bytes.TrimSpace(message); message[0] != '{' {
		return nil, errors.New("the payload is not a message of FCM, which is an object")
	}
	var b bytes.Buffer
	b.Grow(len(message) + 64)
	b.WriteByte('{')
	if validateOnly {
		b.WriteString(`"validate_only":true,`)
	}
	b.WriteString(`"message":`)
	b.Write(message)
	b.WriteByte('}')
	return b.Bytes(), nil
}
