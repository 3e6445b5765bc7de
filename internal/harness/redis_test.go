package harness

import "testing"

func TestFreshRedisComesBackAtItsAddress(t *testing.T) {
	r := FreshRedis(t)
	r.Kill()
	if err := ping(r.Addr); err == nil {
		t.Fatal("a killed Redis answered")
	}
	r.Start(t)
	if err := ping(r.Addr); err != nil {
		t.Fatalf("after the restart: %v", err)
	}
	r.Freeze()
	if err := ping(r.Addr); err == nil {
		t.Error("a frozen Redis answered")
	}
	r.Thaw()
	if err := awaitPong(r.Addr); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}
