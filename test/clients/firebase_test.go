package clients

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	firebase "firebase.google.com/go/v4"
	"firebase.google.com/go/v4/messaging"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/jwt"
	"google.golang.org/api/option"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestFirebase: Firebase's SDK gets a token, sends what it can, and knows each error for what it is. It sends by itself again
// what a service that is unavailable has not taken.
func TestFirebase(t *testing.T) {
	t.Parallel()
	errors := map[string]struct {
		status     int
		name, code string
		recognised func(error) bool
	}{
		"gone":   {404, "NOT_FOUND", "UNREGISTERED", messaging.IsUnregistered},
		"bad":    {400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", messaging.IsInvalidArgument},
		"other":  {403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH", messaging.IsSenderIDMismatch},
		"quota":  {429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", messaging.IsQuotaExceeded},
		"apns":   {401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR", messaging.IsThirdPartyAuthError},
		"broken": {500, "INTERNAL", "INTERNAL", messaging.IsInternal},
	}
	var f *sinktest.FCM
	f = sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, n int) bool {
		if e, ok := errors[recipient]; ok {
			f.Fail(c, e.status, e.name, e.code)
			return true
		}
		if recipient == "later" && n == 1 {
			f.Fail(c, 503, "UNAVAILABLE", "UNAVAILABLE")
			return true
		}
		return false
	})
	client := firebaseClient(t, f)
	for token, e := range errors {
		if _, err := client.Send(t.Context(), &messaging.Message{Token: token}); err == nil || !e.recognised(err) {
			t.Errorf("%s: %v", token, err)
		}
	}
	badge := 3
	everything := &messaging.Message{
		Data: map[string]string{"k": "v"}, Notification: &messaging.Notification{Title: "t", Body: "b"},
		Android: &messaging.AndroidConfig{Priority: "high", CollapseKey: "c", Notification: &messaging.AndroidNotification{ChannelID: "x"}},
		APNS:    &messaging.APNSConfig{Headers: map[string]string{"apns-priority": "10"}, Payload: &messaging.APNSPayload{Aps: &messaging.Aps{Badge: &badge}}},
		Webpush: &messaging.WebpushConfig{Headers: map[string]string{"TTL": "60"}}, FCMOptions: &messaging.FCMOptions{AnalyticsLabel: "l"},
	}
	for _, to := range []messaging.Message{{Token: "anna"}, {Topic: "news"}, {Condition: "'a' in topics"}} {
		m := *everything
		m.Token, m.Topic, m.Condition = to.Token, to.Topic, to.Condition
		name, err := client.Send(t.Context(), &m)
		if want := "projects/demo/messages/" + m.Token + m.Topic + m.Condition + "-1"; err != nil || name != want {
			t.Errorf("%s, %v, want %s", name, err, want)
		}
	}
	if name, err := client.SendDryRun(t.Context(), &messaging.Message{Token: "ben"}); err != nil || name == "" {
		t.Errorf("dry run: %v", err)
	}
	if _, err := client.Send(t.Context(), &messaging.Message{Token: "later"}); err != nil || f.Received("later") != 2 {
		t.Errorf("%v after %d requests", err, f.Received("later"))
	}
	if n := f.Tokens(); n != 1 {
		t.Errorf("%d tokens", n)
	}
}

// TestTokensOfGoogle: Google's library gets a token for the key of the stand-in, and none for another.
func TestTokensOfGoogle(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	for file, want := range map[string]bool{f.KeyFile: true, ofAnother(t, f.KeyFile): false} {
		ctx, account := serviceAccount(t, f, file)
		account.TokenURL = f.URL + "/token"
		if got, err := account.TokenSource(ctx).Token(); (err == nil) != want || err == nil && !got.Valid() {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// ofAnother is the file of a service account with an unknown key.
func ofAnother(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	noError(t, err)
	account := map[string]string{}
	noError(t, json.Unmarshal(content, &account))
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	noError(t, err)
	account["private_key"] = string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	if content, err = json.Marshal(account); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "another.json")
	noError(t, os.WriteFile(file, content, 0o600))
	return file
}

func serviceAccount(t *testing.T, f *sinktest.FCM, file string) (context.Context, *jwt.Config) {
	t.Helper()
	content, err := os.ReadFile(file)
	noError(t, err)
	account, err := google.JWTConfigFromJSON(content, "https://www.googleapis.com/auth/firebase.messaging")
	noError(t, err)
	return context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: trusting(t, f.CAFile)}), account
}

func firebaseClient(t *testing.T, f *sinktest.FCM) *messaging.Client {
	t.Helper()
	ctx, account := serviceAccount(t, f, f.KeyFile)
	app, err := firebase.NewApp(ctx, &firebase.Config{ProjectID: f.Project}, option.WithEndpoint(f.URL+"/v1"), option.WithHTTPClient(account.Client(ctx)))
	noError(t, err)
	client, err := app.Messaging(ctx)
	noError(t, err)
	return client
}
