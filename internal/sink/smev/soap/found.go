package soap

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"slices"
)

// Found is a message that was found, in XML or in JSON.
type Found struct {
	Meta struct {
		MessageID  string `json:"messageId" xml:"MessageId"`
		Original   string `json:"originalMessageId" xml:"OriginalMessageID"`
		OriginalID string `json:"-" xml:"OriginalMessageId"` // as some adapters spell it
	} `json:"smevMetadata" xml:"smevMetadata"`
	Said struct {
		Type    string `json:"messageType" xml:"messageType"`
		Status  string `json:"status" xml:"status"`
		Fault   *coded `json:"fault" xml:"fault"`
		Content *struct {
			Content *struct{} `json:"content" xml:"content"`
			Rejects []coded   `json:"rejects" xml:"rejects"`
			Status  *coded    `json:"status" xml:"status"`
		} `json:"responseContent" xml:"ResponseContent"`
	} `json:"message" xml:"Message"`

	// Document is the QueryResult as it stands in an answer in XML, with the declarations of namespaces around it: a document by itself.
	Document []byte `json:"-" xml:"-"`
}

type coded struct {
	Code string `json:"code" xml:"code"`
}

// Message returns what the message says of its request. Its Kind is "" if it says nothing of what became of that.
func (f *Found) Message() Message {
	m := Message{ID: clean(f.Meta.MessageID), Original: clean(cmp.Or(f.Meta.Original, f.Meta.OriginalID))}
	switch said := &f.Said; {
	case said.Fault != nil:
		m.Kind, m.Code = Refused, clean(said.Fault.Code)
	case clean(said.Type) == "ErrorMessage" || clean(said.Status) == "ERROR":
		m.Kind = Refused
	case said.Content == nil:
	case len(said.Content.Rejects) > 0:
		m.Kind, m.Code = Rejected, clean(said.Content.Rejects[0].Code)
	case said.Content.Status != nil:
		m.Kind, m.Code = Status, clean(said.Content.Status.Code)
	case said.Content.Content != nil:
		m.Kind = Response
	}
	return m
}

// result is a message that was found, and where it stands in an answer.
type result struct {
	Found
	own        []xml.Attr // declarations of namespaces
	begun, end int64      // behind its first tag, and behind it
}

// UnmarshalXML implements xml.Unmarshaler.
func (r *result) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	r.own, r.begun = declarations(start.Attr), d.InputOffset()
	err := d.DecodeElement(&r.Found, &start)
	r.end = d.InputOffset()
	return err
}

// document returns an element with the declarations of what is around it, but for those that it has itself.
func document(element []byte, own, scope []xml.Attr) []byte {
	name := bytes.IndexAny(element, " \t\r\n/>")
	b := bytes.NewBuffer(slices.Clone(element[:name]))
	for i, a := range scope {
		again := func(o xml.Attr) bool { return o.Name == a.Name }
		if a.Value == "" || slices.ContainsFunc(own, again) || slices.ContainsFunc(scope[i+1:], again) {
			continue // the innermost counts
		}
		b.WriteString(" xmlns")
		if a.Name.Space != "" {
			b.WriteString(":" + a.Name.Local)
		}
		b.WriteString(`="`)
		escape(b, a.Value)
		b.WriteString(`"`)
	}
	b.Write(element[name:])
	return b.Bytes()
}

// declarations returns the declarations of namespaces among attributes.
func declarations(attributes ...[]xml.Attr) []xml.Attr {
	return slices.DeleteFunc(slices.Concat(attributes...), func(a xml.Attr) bool { return !declares(a) })
}
