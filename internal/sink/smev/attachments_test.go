package smev

import (
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

const someUUID = "e84029b8-2efc-11ef-9e0f-360b245a0e4a"

func TestListOf(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		" \n":                       "",
		"[]":                        "",
		`[{"filePath":"in/a.pdf"}]`: "",
		`[{"id":"` + someUUID + `","filePath":"/data/ü..pdf","passportId":"p","signaturePKCS7":"QQ==","transferMethod":"REFERENCE","reusableAttachment":true}]`: "",

		`null x`:                             "not a list",
		`{}`:                                 "not a list",
		`[{"filePath":"secret"}`:             "not a list",
		`[{"filePath":"a"}] [`:               "not a list",
		`[{"filePath":"a","path":"secret"}]`: "not a list",
		`[{"filePath":"a"},{"id":"` + someUUID + `"}]`:                       "item 2: no filePath",
		"[{\"filePath\":\"secret\\u0000\"}]":                                 "item 1: no filePath",
		`[{"filePath":"out/../../etc/secret"}]`:                              "item 1: filePath has a segment",
		`[{"filePath":"out\\..\\secret"}]`:                                   "item 1: filePath has a segment",
		`[{"filePath":"a","id":"SECRET"}]`:                                   "item 1: id is",
		`[{"filePath":"a","transferMethod":"secret"}]`:                       "item 1: transferMethod",
		`[{"filePath":"a","signaturePKCS7":"secret!"}]`:                      "item 1: signaturePKCS7",
		"[" + strings.Repeat(`{"filePath":"a"},`, 100) + `{"filePath":"a"}]`: "101 of them",
	} {
		_, err := listOf(text, fileProblem)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%.100s: %v, want %q", text, err, want)
		}
	}
	good := soap.Reference{UUID: someUUID, Hash: "QQ==", MimeType: "application/pdf; x=y", SignaturePKCS7: "QQ=="}
	for want, change := range map[string]func(*soap.Reference){
		"":               func(r *soap.Reference) { r.SignaturePKCS7 = "" },
		"uuid":           func(r *soap.Reference) { r.UUID = strings.ToUpper(someUUID) },
		"hash":           func(r *soap.Reference) { r.Hash = "" },
		"hash is not":    func(r *soap.Reference) { r.Hash = "!" },
		"mimeType":       func(r *soap.Reference) { r.MimeType = "pdf" },
		"signaturePKCS7": func(r *soap.Reference) { r.SignaturePKCS7 = "!" },
	} {
		r := good
		change(&r)
		if err := referenceProblem(r); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}

// with returns a job with a list of attachments.
func with(id, attachments string) *delivery.Job {
	job := jobOf(id)
	job.Headers = []delivery.Header{{Key: "attachments", Value: []byte(attachments)}}
	return job
}

const fromHeader = `{{ .Header "attachments" }}`

func TestAdapterAttachments(t *testing.T) { bothFaces(t, testAdapterAttachments) }

func testAdapterAttachments(t *testing.T, protocol string) {
	far, s := through(t, sinktest.AdapterOptions{Files: []string{"out/a&b.pdf", "out/c.zip"}}, nil, func(c *Config) {
		c.Protocol, c.Wait, c.Attachments = protocol, "accepted", fromHeader
	})
	whole := `{"id":"` + someUUID + `","filePath":"out/c.zip","passportId":"p<1>","signaturePKCS7":"QUJD","transferMethod":"REFERENCE","reusableAttachment":true}`
	if res := deliver(t, s, with("a", `[{"filePath":"out/a&b.pdf"},`+whole+`]`)); res.Class != delivery.Delivered {
		t.Fatalf("%+v", res)
	}
	want := []sinktest.AdapterFile{
		{FilePath: "out/a&b.pdf"},
		{ID: someUUID, FilePath: "out/c.zip", PassportID: "p<1>", SignaturePKCS7: "QUJD", TransferMethod: "REFERENCE", ReusableAttachment: true},
	}
	if got := far.Requests()[0].Files; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if res := deliver(t, s, jobOf("none")); res.Class != delivery.Delivered || len(far.Requests()[1].Files) > 0 {
		t.Errorf("without attachments: %+v, %+v", res, far.Requests())
	}
	if res := deliver(t, s, with("b", `[{"filePath":"out/gone.pdf"}]`)); res.Class != delivery.Permanent || res.Provider.Code != "ValidationFault" || strings.Contains(res.Detail, "gone") {
		t.Errorf("a file that is not there: %+v", res)
	}
	if res := deliver(t, s, with("c", `[{"path":"out/a.pdf"}]`)); res.Class != delivery.Permanent || !strings.HasPrefix(res.Detail, "attachments: not a list") {
		t.Errorf("no list: %+v", res)
	}
	if n := len(far.Requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestDirectAttachments: they are within what is signed, and a request waits while there is no space for its attachments.
func TestDirectAttachments(t *testing.T) {
	for _, version := range []string{"1.1", "1.2", "1.3"} {
		far, s := start(t, sinktest.SMEVOptions{Version: version, Files: map[string]int64{someUUID: 600}, Space: 1000}, func(c *Config) { c.Attachments = fromHeader })
		list := `[{"uuid":"` + someUUID + `","hash":"3RNKfXjGXT4NQrjmmm7b6CEOrS044njPPq2U7HQ+EGE=","mimeType":"application/zip","signaturePKCS7":"QUJD"}]`
		if res := deliver(t, s, with("a", list)); res.Class != delivery.Delivered {
			t.Fatalf("%s: %+v", version, res)
		}
		if got := far.Requests()[0].Attachments; !slices.Equal(got, []string{someUUID}) {
			t.Errorf("%s: %q", version, got)
		}
		if res := deliver(t, s, with("b", list)); res.Class != delivery.Throttled || res.Scope != delivery.ScopeCampaign || res.RetryAfter != quoteWait || res.Provider.Code != "QuoteLimitExceeded" {
			t.Errorf("%s: without space: %+v", version, res)
		}
		if res := deliver(t, s, jobOf("c")); res.Class != delivery.Delivered {
			t.Errorf("%s: without attachments: %+v", version, res)
		}
		if res := deliver(t, s, with("d", `[{"filePath":"a.pdf"}]`)); res.Class != delivery.Permanent || !strings.HasPrefix(res.Detail, "attachments: not a list") {
			t.Errorf("%s: one of the other mode: %+v", version, res)
		}
	}
	call := string(soap.SendRequest("1.3", soap.Request{ID: "m", Content: []byte(`<a xmlns="urn:x"/>`), References: []soap.Reference{{UUID: "<u>", Hash: "h", MimeType: "m"}}}).Envelope)
	if !strings.Contains(call, `</b:MessagePrimaryContent><b:RefAttachmentHeaderList><b:RefAttachmentHeader><b:uuid>&lt;u&gt;</b:uuid><b:Hash>h</b:Hash><b:MimeType>m</b:MimeType>`+
		`</b:RefAttachmentHeader></b:RefAttachmentHeaderList></ns:SenderProvidedRequestData>`) {
		t.Error(call)
	}
}

func TestAttachmentsOfTooMuch(t *testing.T) {
	_, s := start(t, sinktest.SMEVOptions{}, func(c *Config) { c.Attachments = fromHeader })
	if res := deliver(t, s, with("a", "["+strings.Repeat(" ", maxAttachments)+"]")); res.Class != delivery.Permanent || !strings.HasPrefix(res.Detail, "attachments: ") {
		t.Errorf("%+v", res)
	}
}
