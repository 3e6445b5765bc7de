package command

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// TestSinkTest sends one job, and shows no secret.
func TestSinkTest(t *testing.T) {
	sent := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent++
		w.Header().Set("X-Echo", r.Header.Get("X-Api-Key"))
		switch {
		case r.URL.Path == "/denied":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Header.Get("X-Tenant") != "blue":
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_, _ = w.Write([]byte(`{"id":"m-7","key":"` + r.Header.Get("X-Api-Key") + `"}`))
	}))
	defer srv.Close()
	d := newDesk(t, "127.0.0.1:1")
	d.file("pacer.yaml", `
sinks:
  receiver:
    type: http
    url: "`+srv.URL+`/x/{{ .JSON.n }}?token=swordfish"
    headers: {x-api-key: opensesame, x-tenant: '{{ .Header "tenant" }}'}
    take: {provider_message_id: body.id}
  denied: {type: http, url: "`+srv.URL+`/denied", bearer: hunter2222}
  nowhere: {type: discard}
default_sink: nowhere
`)
	for _, tt := range []struct {
		command string
		code    int
		sent    int
		want    []string
	}{
		{"sink test receiver --payload {\"n\":7} --header tenant=blue --header content-type=application/json --id a-1 --campaign spring", 0, 1, []string{
			"POST " + srv.URL + "/x/7?token=***\n", "  pacer-campaign: spring\n", "  webhook-id: a-1\n", "  content-type: application/json\n", "  x-api-key: ***\n",
			"  {\"n\":7}\n", "  HTTP 200 OK\n", "  x-echo: ***\n", `{"id":"m-7","key":"***"}`, "\ndelivered in ", ", message id m-7\n",
		}},
		{"sink test receiver --payload {\"n\":7}", 1, 1, []string{"  webhook-id: test-", "HTTP 422", "\npermanent in ", ": HTTP 422 Unprocessable Entity from"}},
		{"sink test receiver --payload {}", 1, 0, []string{"permanent in ", "url: at <.JSON.n>: map has no entry"}},
		{"sink test denied", 2, 1, []string{"  authorization: ***\n", "misconfigured in ", "about the sink", "sinks.denied: HTTP 401 Unauthorized"}},
		{"sink test nowhere", 0, 0, []string{"delivered in "}},
		{"sink test reciever", 2, 0, []string{"the configuration has no sink reciever; it has "}},
		{"sink test receiver --header tenant", 2, 0, []string{"--header: \"tenant\" is not of the form name=value"}},
		{"sink test receiver --header pacer-weight=2", 2, 0, []string{"--header: pacer-weight is pacer's own"}},
		{"sink test receiver --campaign (unknown)", 2, 0, []string{"--campaign must be 1 to 256", "and not (unknown)"}},
	} {
		sent = 0
		code, out, said := d.types(tt.command)
		if code != tt.code || sent != tt.sent {
			t.Errorf("%s: code %d, %d requests\n%s%s", tt.command, code, sent, out, said)
		}
		contains(t, out+said, tt.want...)
		for _, secret := range []string{"swordfish", "opensesame", "hunter2222"} {
			if strings.Contains(out+said, secret) {
				t.Errorf("%s: shows %s\n%s%s", tt.command, secret, out, said)
			}
		}
	}
	v := read[view.Tested](d, "sink test receiver --payload {\"n\":7} --header tenant=blue")
	if v.Class != "delivered" || v.Status != 200 || v.ProviderMessageID != "m-7" || !strings.Contains(v.Request, "/x/7") ||
		!strings.Contains(v.Answer, "HTTP 200") {
		t.Errorf("%+v", v)
	}
}

// TestADestinationWritesNoLog: net/http writes what follows an answer to the standard log.
func TestADestinationWritesNoLog(t *testing.T) {
	l := try(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	over := make(chan struct{})
	go func() {
		defer close(over)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and hunter22")
		_, _ = io.Copy(io.Discard, c) // until pacer closes it
	}()
	var said bytes.Buffer
	log.SetOutput(&said)
	d := newDesk(t, "127.0.0.1:1")
	d.file("pacer.yaml", "sinks: {receiver: {type: http, url: \"http://"+l.Addr().String()+"/\"}}\n")
	if code, out, _ := d.types("sink test receiver"); code != 0 {
		t.Error(out)
	}
	if <-over; said.Len() > 0 {
		t.Errorf("%s", &said)
	}
}

// TestSinkTestOfARequestThatIsTaken: the response that a daemon would ask for is no reason to wait.
func TestSinkTestOfARequestThatIsTaken(t *testing.T) {
	var out bytes.Buffer
	showTested(&printer{w: &out}, &view.Tested{Class: delivery.Pending.String(), RetryAfter: 30, Took: 1})
	if want := "pending in 1 ms: the request was taken; a daemon would ask for its response after 30 s\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
