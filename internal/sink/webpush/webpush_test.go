package webpush

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, w *sinktest.WebPush, change func(*Config)) *Sink {
	t.Helper()
	c := Default()
	c.CAFile, c.Key, c.Subject = w.CAFile, w.Key, "mailto:ops@example.com"
	c.Guard.Ports, c.Guard.Allow = []int{w.Port, 1}, []string{"127.0.0.0/8"}
	if change != nil {
		change(c)
	}
	s, err := New(c, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, s, err)
}

func job(subscription, payload string) *delivery.Job {
	return &delivery.Job{
		ID: "u-1", Campaign: "c", Payload: []byte(payload),
		Meta: delivery.Meta{Headers: []delivery.Header{{Key: "subscription", Value: []byte(subscription)}, {Key: "thread", Value: []byte("news-7")}}},
	}
}

func decoded(t *testing.T, s string) []byte {
	t.Helper()
	b, err := decode(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSeal: the example of RFC 8291, appendix A.
func TestSeal(t *testing.T) {
	own, err := ecdh.P256().NewPrivateKey(decoded(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := readSubscription(`{"endpoint":"https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV","keys":{` +
		`"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}`)
	if err != nil {
		t.Fatal(err)
	}
	body := seal(to, []byte("When I grow up, I want to be a watermelon"), own, decoded(t, "DGv6ra1nlYgDCS1FRnbzlw"))
	const want = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT" +
		"pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if got := base64.RawURLEncoding.EncodeToString(body); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestMessages: the user agent decrypts the job's message at every size, and no two messages share key or salt.
func TestMessages(t *testing.T) {
	t.Parallel()
	w := sinktest.StartWebPush(t, nil)
	s := open(t, w, nil)
	salts, sizes := map[string]bool{}, []int{1, 2, 41, maxMessage - 1, maxMessage, 0}
	for i, size := range sizes {
		message := strings.Repeat("ü", size/2) + strings.Repeat("x", size%2)
		res := s.Deliver(t.Context(), job(w.Subscription("ann"), message), nil)
		if res.Class != delivery.Delivered || res.Provider.MessageID != fmt.Sprint(i+1) {
			t.Fatalf("%d: %+v", size, res)
		}
		got := w.Got()[i]
		if got.Message != message || got.TTL != "86400" || got.Urgency != "" || got.Topic != "" {
			t.Errorf("%d: %+v", size, got)
		}
		salts[got.Salt] = true
	}
	if len(salts) != len(sizes) {
		t.Errorf("%d different beginnings of %d", len(salts), len(sizes))
	}
	for payload, subscription := range map[string]string{
		strings.Repeat("x", maxMessage+1): w.Subscription("ann"), "1": "", "2": "hunter22", "3": `{"endpoint":"hunter22"}`, "4": `{"endpoint":"https://hunter22"}`,
		"5": strings.Replace(w.Subscription("ann"), `"p256dh":"B`, `"p256dh":"C`, 1), "6": strings.Replace(w.Subscription("ann"), `"auth":"`, `"auth":"hunter22`, 1),
	} {
		if res := s.Deliver(t.Context(), job(subscription, payload), nil); res.Class != delivery.Permanent || strings.Contains(res.Detail, "hunter22") || res.Detail == "" {
			t.Errorf("%.20s: %+v", payload, res)
		}
	}
	if n := w.Received("ann"); n != len(sizes) {
		t.Errorf("%d messages", n)
	}
}

// TestSettings: subscription and message from the payload, urgency and topic from the job, a time to live within that of the job.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := sinktest.StartWebPush(t, nil)
	s := open(t, w, func(c *Config) {
		c.Subscription, c.Body = `{{ json .JSON.to }}`, `{{ json .JSON.message }}`
		c.Urgency, c.Topic, c.TTL = `{{ .JSON.urgency }}`, `{{ .Header "thread" }}`, time.Hour
	})
	payload := func(urgency string) string {
		return `{"to":` + w.Subscription("ann") + `,"message":{"title":"Hi"},"urgency":"` + urgency + `"}`
	}
	j := job("", payload("high"))
	j.ExpiresAt = time.Now().Add(10*time.Minute + time.Second)
	for _, j := range []*delivery.Job{j, job("", payload("low"))} {
		sinktest.Deliver(t, s, j, delivery.Delivered)
	}
	got := w.Got()
	if len(got) != 2 || got[0].Message != `{"title":"Hi"}` || got[0].Urgency != "high" || got[0].Topic != "news-7" || got[0].TTL != "600" || got[1].TTL != "3600" {
		t.Errorf("%+v", got)
	}
	if got[0].Authorization != got[1].Authorization {
		t.Error("a token is not used again")
	}
	if res := s.Deliver(t.Context(), job("", payload("hunter22")), nil); res.Class != delivery.Permanent || !strings.HasPrefix(res.Detail, "urgency: ") || strings.Contains(res.Detail, "hunter22") {
		t.Errorf("%+v", res)
	}
}

// TestEndpointsAreGuarded: they come from jobs.
func TestEndpointsAreGuarded(t *testing.T) {
	t.Parallel()
	w := sinktest.StartWebPush(t, nil)
	at := func(endpoint string) *delivery.Job {
		return job(strings.Replace(w.Subscription("ann"), w.URL, endpoint, 1), "x")
	}
	guarded := open(t, w, func(c *Config) { c.Guard.Allow = nil })
	for _, endpoint := range []string{
		w.URL, strings.Replace(w.URL, "127.0.0.1", "localhost", 1), "https://169.254.169.254", "http://example.com", "https://example.com:22",
	} {
		if res := guarded.Deliver(t.Context(), at(endpoint), nil); res.Class != delivery.Permanent || !strings.Contains(res.Detail, "guard") {
			t.Errorf("%s: %+v", endpoint, res)
		}
	}
	if n := w.Connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
	s := open(t, w, nil)
	if res := s.Deliver(t.Context(), at("https://127.0.0.1:1"), nil); res.Class != delivery.Unreachable || res.Scope != delivery.ScopeDestination {
		t.Errorf("%+v", res)
	}
	if got := s.Destinations()(at("https://PUSH.example.com/x?y")); got != "https://push.example.com:443" {
		t.Errorf("the destination is %s", got)
	}
	if got := s.Destinations()(job("hunter22", "")); got != "" {
		t.Errorf("the destination is %s", got)
	}
	whole := open(t, w, func(c *Config) { c.Subscription = `{{ json .JSON.subscription }}` })
	for size, want := range map[int]string{1 << 10: w.URL, 1 << 20: ""} { // it takes too long
		j := job("", `{"subscription":`+w.Subscription("ann")+`,"x":"`+strings.Repeat("x", size)+`"}`)
		if got := whole.Destinations()(j); got != want {
			t.Errorf("with %d bytes, the destination is %q", size, got)
		}
	}
	if err := s.Check(t.Context()); err != nil || w.Received("ann") != 0 {
		t.Error(err)
	}
}

// TestOriginOf: a token is for an origin, whatever its spelling.
func TestOriginOf(t *testing.T) {
	for address, want := range map[string]string{
		"https://A.b/c": "https://a.b", "https://a:443/": "https://a", "https://a:80/": "https://a:80", "http://a:80/": "http://a", "https://[::1]:443/x": "https://[::1]",
	} {
		u, _ := url.Parse(address)
		if got := originOf(u); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestReadKey(t *testing.T) {
	w := sinktest.StartWebPush(t, nil)
	key, err := readKey(w.Key + "\n")
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ec})), w.Key + "=",
	} {
		var got *ecdsa.PrivateKey
		if got, err = readKey(text); err != nil || !got.Equal(key) {
			t.Errorf("%.20s: %v", text, err)
		}
	}
	for _, text := range []string{"", "hunter22", "-----BEGIN hunter22", strings.Repeat("A", 43), w.Key[:30], w.Key + w.Key} {
		if _, err := readKey(text); err == nil || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAProxyThatIsNone: what is no URL any more changes nothing.
func TestAProxyThatIsNone(t *testing.T) {
	p := sinktest.StartWebPush(t, nil)
	proxy := ""
	s := open(t, p, func(c *Config) { c.SecretFrom("proxy", func() (string, error) { return proxy, nil }) })
	if proxy = "http://user:hunter22@:%zz/"; s.Reread() {
		t.Error("it is used")
	}
}
