package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// Keys of an envelope without a header of their own: the payload, any JSON value, and the values of the job's keys by their names.
const keyPayload, keyKeys = "payload", "keys"

// envelope is a job written as one JSON object. The values stay raw, so that an error can name its key; nil if the
// object does not have the key.
type envelope struct {
	values  values
	payload []byte
	keys    []byte

	flaw *delivery.Flaw // the first key that is not known, or is there twice; nil if there is none
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
		at := slices.IndexFunc(fields[:], func(f field) bool { return f.key == key })
		switch {
		case key == keyPayload && e.payload == nil:
			e.payload = raw
		case key == keyKeys && e.keys == nil:
			e.keys = raw
		case key == keyPayload || key == keyKeys || at >= 0 && e.values[at] != nil:
			e.flaw = cmp.Or(e.flaw, invalid(key, "must be there once"))
		case key == "" || at < 0:
			e.flaw = cmp.Or(e.flaw, invalid(quoted(key), "is not a key of an envelope; use one of "+strings.Join(Keys, ", ")+", "+keyKeys+", "+keyPayload))
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

// readEnvelope reads a job from a value that is a JSON envelope. If something in it is invalid, the job keeps the
// whole value as its payload, so that a corrected replay is read as an envelope again, and its campaign if that can be
// read. The headers beside it count too; a replay has some of them twice.
func (d *Decoder) readEnvelope(r *delivery.Record, beside *values) {
	j := d.job
	var e envelope
	err := e.parse(r.Value)
	named, isText := unquoted(e.values[campaign])
	if isText {
		d.name, d.value = fields[campaign].key, named
		d.readCampaign()
	}
	why := ""
	switch {
	case e.values[campaign] == nil:
		why = "no pacer-campaign header, and the value is not a JSON envelope with a campaign"
	case err != nil:
		why = "no pacer-campaign header, and the value is not one JSON object, though it begins like an envelope"
	case !isText:
		why = "the envelope's campaign must be a string"
	case e.payload == nil && e.flaw != nil:
		why = "the envelope has no payload, and " + e.flaw.Detail
	case e.payload == nil:
		why = "the envelope has no payload"
	}
	if why != "" {
		j.Flaw = cmp.Or(j.Flaw, &delivery.Flaw{Defect: delivery.ReasonUndecodable, Detail: why})
		return
	}
	j.Flaw = cmp.Or(j.Flaw, e.flaw)
	once := !has(r.Headers, delivery.HeaderReplayedFrom)
	for i, raw := range e.values {
		switch text, ok := unquoted(raw); {
		case raw == nil && fields[i].key != "":
			e.values[i] = beside[i]
		case raw != nil && beside[i] != nil && once:
			j.Flaw = cmp.Or(j.Flaw, invalid(fields[i].header, "must be there once"))
		case string(raw) == "null":
			e.values[i] = nil // as if it were missing
		case ok && !fields[i].raw:
			e.values[i] = text
		case raw != nil && !fields[i].raw:
			j.Flaw = cmp.Or(j.Flaw, invalid(fields[i].key, "must be a string"))
			e.values[i] = nil
		}
	}
	if e.values[jobID] == nil {
		e.values[cloudEvent] = beside[cloudEvent]
	}
	d.read(&e.values, false, true)
	j.Flaw = cmp.Or(j.Flaw, readKeys(j, e.keys))
	for _, h := range j.Headers {
		if once && has(r.Headers, h.Key) {
			j.Flaw = cmp.Or(j.Flaw, invalid(h.Key, "must be there once"))
		}
	}
	if j.Defect() != delivery.ReasonInvalidHeader {
		j.Payload, j.ContentType = e.payload, contentTypeJSON
	}
}

// readKeys makes headers of the keys of an envelope, which the job has from then on; it returns what is wrong with them.
func readKeys(j *delivery.Job, raw []byte) *delivery.Flaw {
	var keys map[string]string
	if len(raw) > 0 && json.Unmarshal(raw, &keys) != nil {
		return invalid(keyKeys, "must be an object of strings")
	}
	var headers []delivery.Header
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		h := delivery.Header{Key: delivery.HeaderKey + name, Value: []byte(keys[name])}
		if flaw := checkKey(headers, h); flaw != nil {
			return flaw
		}
		headers = append(headers, h)
	}
	j.Headers = headers
	return nil
}

// unquoted returns the text of a JSON string; false for another value.
func unquoted(raw []byte) ([]byte, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return nil, false
	}
	return []byte(s), true
}
