package count

import (
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"
)

func TestStampIsTheTimeOfArrivalNotOfReading(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("no stamps from this kernel")
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := stampedListener{inner}
	defer func() { _ = listener.Close() }()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	before := time.Now()
	if _, err := fmt.Fprint(client, "hello"); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	const late = 50 * time.Millisecond // the reader has other things to do meanwhile
	time.Sleep(late)
	buffer := make([]byte, 16)
	n, err := server.Read(buffer)
	if err != nil || string(buffer[:n]) != "hello" {
		t.Fatalf("read %q, %v", buffer[:n], err)
	}
	stamped, ok := server.(*stampedConn)
	if !ok || stamped.at.Load() == nil {
		t.Skip("no stamps from this kernel")
	}
	at := *stamped.at.Load()
	// A few milliseconds of grace: the first packets of a connection may come before the kernel stamps them.
	if at.Before(before.Add(-late/10)) || at.After(after.Add(late/2)) {
		t.Fatalf("stamped %s after it was sent and read %s after", at.Sub(before), time.Since(before))
	}
	_ = client.Close()
	if _, err := server.Read(buffer); err == nil {
		t.Fatal("no end of file")
	}
}

func TestStampsFromNowhereAreNotBelieved(t *testing.T) {
	now := time.Now()
	for name, arrived := range map[string]time.Time{"future": now.Add(time.Hour), "long ago": now.Add(-time.Hour)} {
		var c stampedConn
		c.note(arrived, now)
		if got := *c.at.Load(); !got.Equal(now) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
