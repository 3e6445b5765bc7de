package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// envelope is a job written as one JSON object. The values stay raw, so that an error can name its key; nil if the
// object does not have the key.
type envelope struct {
	values [len(envelopeKeys)]json.RawMessage

	// The first key that is not known, and the first that is there twice; nil if there is none.
	stray, twice *string
}

// envelopeKeys are the keys of an envelope.
var envelopeKeys = [...]string{"campaign", "id", "weight", "priority", "destination", "not_before", "expires_at", "payload"}

// value returns the value of a known key.
func (e *envelope) value(key string) json.RawMessage {
	return e.values[slices.Index(envelopeKeys[:], key)]
}

// text returns the string of a key; nil if it is missing or no string.
func (e *envelope) text(j *delivery.Job, key string) []byte {
	raw := present(e.value(key))
	if raw == nil {
		return nil
	}
	s, ok := text(raw)
	if !ok {
		invalid(j, key, "must be a string")
	}
	return s
}

var errNoObject = errors.New("not a JSON object")

// parse reads the keys of a JSON object, exactly as they are written: encoding/json itself would ignore their case, and
// keys that are not known, and take the last of two. If value is not one JSON object, e holds what was read before.
func (e *envelope) parse(value []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(value))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return errNoObject
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string) // within an object, keys and values alternate
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		switch at := slices.Index(envelopeKeys[:], key); {
		case at < 0:
			e.stray = cmp.Or(e.stray, &key)
		case e.values[at] != nil:
			e.twice = cmp.Or(e.twice, &key)
		default:
			e.values[at] = raw
		}
	}
	if _, err := decoder.Token(); err != nil { // the end of the object
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errNoObject
	}
	return nil
}

// decodeEnvelope reads a job from a value that is a JSON envelope. If something in it is invalid, the job keeps the
// whole value as its payload, so that a corrected replay is read as an envelope again, and its campaign if that can be
// read.
func (d *Decoder) decodeEnvelope(j *delivery.Job, value []byte, limits Limits) {
	j.ContentType = contentTypeBinary
	var e envelope
	err := e.parse(value)
	campaign, isText := text(e.value("campaign"))
	if isText {
		d.setCampaign(j, "campaign", campaign)
	}
	switch {
	case e.value("campaign") == nil:
		undecodable(j, "no pacer-campaign header, and the value is not a JSON envelope with a campaign")
		return
	case err != nil:
		undecodable(j, "no pacer-campaign header, and the value is not one JSON object, though it begins like an envelope")
		return
	case !isText:
		undecodable(j, "the envelope's campaign must be a string")
		return
	case e.value("payload") == nil:
		detail := "the envelope has no payload"
		if e.stray != nil {
			detail += ", and " + quoted(*e.stray) + " " + strayKey(*e.stray)
		}
		undecodable(j, detail)
		return
	}
	if e.stray != nil {
		invalid(j, quoted(*e.stray), strayKey(*e.stray))
	}
	if e.twice != nil {
		invalid(j, *e.twice, "must be there once")
	}
	if id := e.text(j, "id"); id != nil {
		if j.ID = string(id); !delivery.ValidID(j.ID) {
			j.ID = ""
			invalid(j, "id", idRule)
		}
	}
	setPriority(j, "priority", e.text(j, "priority"))
	d.setDestination(j, "destination", e.text(j, "destination"))
	setNotBefore(j, "not_before", e.text(j, "not_before"), limits)
	setTime(j, "expires_at", e.text(j, "expires_at"), &j.ExpiresAt)
	setWeight(j, "weight", present(e.value("weight")), limits)
	if j.Defect() == delivery.ReasonInvalidHeader {
		return
	}
	j.Payload, j.ContentType = e.value("payload"), contentTypeJSON
}

// strayKey says what is wrong with a key that is not known.
func strayKey(key string) string {
	return "is not a key of an envelope; use one of " + strings.Join(envelopeKeys[:], ", ")
}

// undecodable records the defect, unless there is one that says more: a misspelled header.
func undecodable(j *delivery.Job, detail string) {
	if j.Flaw == nil {
		j.Flaw = &delivery.Flaw{Defect: delivery.ReasonUndecodable, Detail: detail}
	}
}

// present treats an explicit null as a missing field.
func present(raw json.RawMessage) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func text(raw json.RawMessage) ([]byte, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return nil, false
	}
	return []byte(s), true
}
