package httpcall

import (
	"net/http"
	"strings"
	"testing"
)

// TestNoTokenIsShown: nor what a request of a client has as its credentials, in their parts.
func TestNoTokenIsShown(t *testing.T) {
	for _, value := range []string{"bearer swordfish-1", "vapid t=swordfish-1.x_y, k=swordfish-2", "Basic swordfish-1=="} {
		if text := (&trip{client: &Client{secrets: Scrubber(nil)}, Request: Request{Header: http.Header{keyAuthorization: {value}}}}).public("you are " + strings.NewReplacer("bearer ", "", "t=", "", "k=", "").Replace(value)); strings.Contains(text, "swordfish") {
			t.Errorf("%s: %s", value, text)
		}
	}
}
