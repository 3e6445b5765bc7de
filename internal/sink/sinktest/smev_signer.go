package sinktest

import (
	"bytes"
	"testing"
)

// StartSigner starts a stand-in of a service that signs calls to SMEV, and returns its URL. It adds a signature, of nothing, to
// the element of the Id that it is told.
func StartSigner(t testing.TB, token string) (url string) {
	t.Helper()
	return Start(t, Plain, Options{}, func(c *Call) {
		end := bytes.LastIndex(c.Payload, []byte("</ns:"))
		id := []byte(`Id="` + c.Header.Get("X-Signed-Id") + `"`)
		if c.Header.Get("Authorization") != "Bearer "+token || end < 0 || !bytes.Contains(c.Payload, id) {
			c.Answer(403)
			return
		}
		const signature = `<ns:CallerInformationSystemSignature><d:Signature xmlns:d="http://www.w3.org/2000/09/xmldsig#"/></ns:CallerInformationSystemSignature>`
		c.Text(200, "text/xml; charset=utf-8", string(c.Payload[:end])+signature+string(c.Payload[end:]))
	}).URL
}
