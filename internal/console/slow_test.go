package console

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestAChangeOfManyCampaignsTakesItsTime: 100,000 campaigns take longer than a page may. It is answered, and made also if its caller is gone.
func TestAChangeOfManyCampaignsTakesItsTime(t *testing.T) {
	const made = `1 campaigns {Action:pause Rate: Percent:0 Until:} by the-operator@invalid IP: `
	for path, body := range map[string]string{
		"/api/v1/bulk-changes": `{"action":"pause","ids":["spring"],"expect":1}`,
		"/bulk":                url.Values{"action": {"pause"}, "q": {"spring"}, "expect": {"1"}}.Encode(),
	} {
		synctest.Test(t, func(t *testing.T) {
			w, l := guarded(), make(pipes)
			w.slow = 2 * time.Minute
			s := newServer(w)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- s.serve(ctx, endpoint{Listener: l, handler: s.routes()}) }()
			send := func() net.Conn {
				client, server := net.Pipe()
				l <- server
				r, _ := http.NewRequest(http.MethodPost, here+path, strings.NewReader(body))
				r.Header.Set("Authorization", "Bearer operatoroperator")
				if r.Header.Set("Content-Type", "application/x-www-form-urlencoded"); body[0] == '{' {
					r.Header.Set("Content-Type", "application/json")
				}
				if err := r.Write(client); err != nil {
					t.Error(err)
				}
				return client
			}
			client := send()
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			} else if answer.StatusCode >= 400 {
				t.Errorf("%s: %s", path, answer.Status)
			}
			w.did(t, made)
			_ = client.Close()
			client = send()
			time.Sleep(time.Minute)
			_ = client.Close()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			w.did(t, made)
			client = send()
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			time.Sleep(w.slow)
			synctest.Wait()
			if len(w.changes) > 0 {
				t.Error("a change goes on after the end of the server")
			}
			_ = client.Close()
		})
	}
}
