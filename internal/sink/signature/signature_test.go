package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	old     = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("o"), 24))
	current = "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("c"), 64))
	seed    = bytes.Repeat([]byte("s"), ed25519.SeedSize)
	private = "whsk_" + base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed))
)

// TestKnownSignature is the example that the specification's libraries are tested with.
func TestKnownSignature(t *testing.T) {
	s, err := New([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
	if err != nil {
		t.Fatal(err)
	}
	got := s.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", Timestamp(time.Unix(1614265330, 0)), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSign: each secret has its signature, in order, and so it is from many goroutines.
func TestSign(t *testing.T) {
	s, err := New([]string{current, old, private, "whsk_" + base64.StdEncoding.EncodeToString(seed)})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"a":1}`)
	signed := append([]byte("u-42.1700000000."), body...)
	expected := func(secret string) string {
		b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		h := hmac.New(sha256.New, b)
		h.Write(signed)
		return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				parts := strings.Fields(s.Sign("u-42", "1700000000", body))
				if len(parts) != 4 || parts[0] != expected(current) || parts[1] != expected(old) || parts[2] != parts[3] {
					t.Errorf("%q", parts)
					return
				}
				sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(parts[2], "v1a,"))
				if err != nil || !ed25519.Verify(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey), signed, sum) {
					t.Errorf("%s, %v", parts[2], err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestSecretsThatAreRefused(t *testing.T) {
	short := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("hunter22"), 2))
	wrong := append(bytes.Clone(seed), seed...) // not the public key of the seed
	for secret, want := range map[string]string{
		"":                "must begin with whsec_",
		"hunter22":        "must begin with whsec_",
		"whsec_hunter22!": "must be base64",
		"whsec_" + short:  "must have 24 to 64 bytes behind whsec_, not 16",
		"whsk_" + short:   "must be a private key of ed25519",
		"whsk_" + base64.StdEncoding.EncodeToString(wrong): "must be a private key of ed25519",
	} {
		_, err := New([]string{old, secret})
		if err == nil || !strings.HasPrefix(err.Error(), "item 2: "+want) || strings.Contains(err.Error(), "hunter22") || strings.Contains(err.Error(), short) {
			t.Errorf("%s: %v, want %s", secret, err, want)
		}
	}
	if _, err := New([]string{old, old, old, old, old}); err == nil || err.Error() != "5 of them; use at most 4" {
		t.Error(err)
	}
}

func TestID(t *testing.T) {
	if got := ID("u-42/x"); got != "u-42/x" {
		t.Error(got)
	}
	a, b := ID("pacer.jobs/0/1"), ID("pacer.jobs/0/2")
	if a == b || a != ID("pacer.jobs/0/1") || strings.Contains(a, ".") || !strings.HasPrefix(a, "msg_") || len(a) != 56 {
		t.Errorf("%s, %s", a, b)
	}
}
