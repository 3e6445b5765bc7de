package page

import (
	"testing"

	"github.com/pacer/pacer/internal/console/auth"
)

// TestEveryPageTakesARole: a page or a form without one would be for everybody. Only the form for logging in is.
func TestEveryPageTakesARole(t *testing.T) {
	for name, p := range pages {
		if p.role < auth.Viewer && name != "login" {
			t.Errorf("page %q takes no role", name)
		}
	}
	for name, a := range actions {
		if a.role < auth.Operator {
			t.Errorf("form %q takes the role %s", name, a.role)
		}
	}
	if len(pages) < 20 || len(actions) < 15 {
		t.Errorf("%d pages and %d forms", len(pages), len(actions))
	}
}
