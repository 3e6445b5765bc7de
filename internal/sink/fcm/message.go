package fcm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxMessage bounds a message, in bytes: what is delivered to a device has at most 4,096, and settings of platforms come
// on top of it.
const maxMessage = 32 << 10

const maxTopic = 900 // of a topic's characters

var topicPattern = regexp.MustCompile(`^(/topics/)?[a-zA-Z0-9_.~%-]+$`)

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
	if err := validate(message); err != nil {
		return nil, err
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

// validate finds what the service would refuse, in as far as it is about who gets the message.
func validate(message []byte) error {
	var m struct {
		Token     *string                    `json:"token"`
		Topic     *string                    `json:"topic"`
		Condition *string                    `json:"condition"`
		Data      map[string]json.RawMessage `json:"data"`
	}
	if bytes.Equal(bytes.TrimSpace(message), []byte("null")) || json.Unmarshal(message, &m) != nil {
		return errors.New("the payload is not a message of FCM: token, topic and condition are texts, and data is an object")
	}
	targets := 0
	for _, target := range []*string{m.Token, m.Topic, m.Condition} {
		if target != nil && *target != "" {
			targets++
		}
	}
	switch {
	case targets != 1:
		return fmt.Errorf("the message has %d of token, topic and condition; it needs exactly one", targets)
	case m.Topic != nil && len(strings.TrimPrefix(*m.Topic, "/topics/")) > maxTopic:
		return fmt.Errorf("the message's topic is longer than %d characters", maxTopic)
	case m.Topic != nil && *m.Topic != "" && !topicPattern.MatchString(*m.Topic):
		return errors.New("the message's topic has other characters than letters, digits and -_.~%")
	}
	for _, value := range m.Data {
		if value[0] != '"' {
			return errors.New("the message's data has a value that is not text")
		}
	}
	return nil
}
