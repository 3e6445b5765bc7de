package jwt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestStable: at every time there is one token for an audience, the same in every daemon, and none is older than a round.
func TestStable(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const every = 40 * time.Minute
	daemon := func() *Stable {
		return &Stable{Key: key, Every: every, Header: map[string]any{"kid": "k"}, Before: "<", After: ">", Claims: func(audience string, begun time.Time) map[string]any {
			return map[string]any{"aud": audience, "iat": begun.Unix()}
		}}
	}
	a := daemon()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(1_700_000_000, 1_900_000_000).Draw(t, "now"), 0)
		audience := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "audience")
		first, other, later := a.Token(audience, now), daemon().Token(audience, now), a.Token(audience, now.Add(every))
		again := a.Token(audience, now)
		if first != other || first != again || first == later {
			t.Fatalf("%s\n%s\n%s\n%s", first, other, again, later)
		}
		var claims struct {
			Aud string
			Iat int64
		}
		parts := strings.Split(strings.Trim(first, "<>"), ".")
		text, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || json.Unmarshal(text, &claims) != nil || claims.Aud != audience || !strings.HasPrefix(first, "<ey") || !strings.HasSuffix(first, ">") {
			t.Fatalf("%s: %v", first, err)
		}
		if age := now.Sub(time.Unix(claims.Iat, 0)); age < 0 || age >= every {
			t.Fatalf("it was issued %s ago", age)
		}
	})
	now := time.Now()
	for i := range 3 * maxKept {
		if a.Token(fmt.Sprint(i), now); a.current.Load().kept.Load() > maxKept {
			t.Fatal("too many are kept")
		}
	}
	if one, two := a.Token("x", now), a.Token("x", now); one != two || a.Token("y", now) == one {
		t.Error("a token is not for its audience")
	}
}
