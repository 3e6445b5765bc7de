package httpcall

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestAFarewellWaitsForNothing: a destination has answered, and is gone when its connection is closed here.
func TestAFarewellWaitsForNothing(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	certificates := srv.TLS.Certificates
	srv.Close()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		whole := tls.Client(newAging(here, 0), &tls.Config{InsecureSkipVerify: true})
		far := tls.Server(there, &tls.Config{Certificates: certificates, SessionTicketsDisabled: true})
		go func() { _ = far.Handshake() }()
		if err := whole.Handshake(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		aging(whole).use()
		_ = there.Close()
		begun := time.Now()
		_ = whole.Close()
		if took := time.Since(begun); took != 0 {
			t.Errorf("closing it took %s", took)
		}
	})
}
