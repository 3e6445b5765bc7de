package consumer

import (
	"encoding/json"

	"github.com/pacer/pacer/internal/delivery"
)

// envelope is a job written as one JSON object. Every field stays raw until its name is known to be the one at fault.
type envelope struct {
	Campaign  json.RawMessage `json:"campaign"`
	ID        json.RawMessage `json:"id"`
	Weight    json.RawMessage `json:"weight"`
	Priority  json.RawMessage `json:"priority"`
	NotBefore json.RawMessage `json:"not_before"`
	ExpiresAt json.RawMessage `json:"expires_at"`
	Payload   json.RawMessage `json:"payload"`
}

// decodeEnvelope reads a job from a value that is a JSON envelope. When something in it is wrong the job keeps the
// whole value as its payload and names no campaign, so that a corrected replay is read as an envelope again.
func decodeEnvelope(j *delivery.Job, value []byte, maxWeight int64) {
	j.ContentType = contentTypeBinary
	var e envelope
	if err := json.Unmarshal(value, &e); err != nil || e.Campaign == nil {
		undecodable(j, "no pacer-campaign header, and the value is not a JSON envelope with a campaign")
		return
	}
	campaign, ok := text(e.Campaign)
	if !ok {
		undecodable(j, "the envelope's campaign must be a string")
		return
	}
	if e.Payload == nil {
		undecodable(j, "the envelope has no payload")
		return
	}
	if !delivery.ValidID(string(campaign)) {
		invalid(j, "campaign", idRule)
	}
	if id := stringField(j, "id", e.ID); id != nil {
		if j.ID = string(id); !delivery.ValidID(j.ID) {
			j.ID = ""
			invalid(j, "id", idRule)
		}
	}
	setPriority(j, "priority", stringField(j, "priority", e.Priority))
	setTime(j, "not_before", stringField(j, "not_before", e.NotBefore), &j.NotBefore)
	setTime(j, "expires_at", stringField(j, "expires_at", e.ExpiresAt), &j.ExpiresAt)
	setWeight(j, "weight", present(e.Weight), maxWeight)
	if j.Defect == delivery.ReasonInvalidHeader {
		return
	}
	j.Campaign, j.Payload, j.ContentType = string(campaign), e.Payload, contentTypeJSON
}

func undecodable(j *delivery.Job, detail string) {
	j.Defect, j.DefectDetail = delivery.ReasonUndecodable, detail
}

// present treats an explicit null as a field that is not there.
func present(raw json.RawMessage) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// stringField reads an optional string; it is nil where the field is not there.
func stringField(j *delivery.Job, name string, raw json.RawMessage) []byte {
	if present(raw) == nil {
		return nil
	}
	s, ok := text(raw)
	if !ok {
		invalid(j, name, "must be a string")
		return nil
	}
	return s
}

func text(raw json.RawMessage) ([]byte, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return nil, false
	}
	return []byte(s), true
}
