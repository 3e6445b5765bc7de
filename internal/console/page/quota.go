package page

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

func fillAdjustQuota(_ context.Context, _ *Site, query url.Values, c *content) {
	if q := c.quota(query.Get("id")); q != nil {
		c.Title, c.Data = "Correct a count of quota "+q.ID, q
	}
}

func adjustQuota(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id := form.Get("id")
	used, err := strconv.ParseInt(strings.TrimSpace(form.Get("used")), 10, 64)
	if err != nil {
		return "", nil, catalog.Fault(catalog.ErrInvalid, "used: %q is not a whole number.", notation.Shorten(form.Get("used")))
	}
	_, err = s.watcher.Sources().Adjust(ctx, id, view.Adjustment{Span: form.Get("span"), Used: used, Lower: form.Get("lower") == "yes"})
	return quotas.page(id, "adjusted"), nil, err
}

// holdKey sends no job of one value of a key for a time, a day if none is given.
func holdKey(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	until, err := notation.ParseUntil(cmp.Or(strings.TrimSpace(form.Get("until")), "1d"), time.Now())
	if err != nil {
		return "", nil, catalog.Fault(catalog.ErrInvalid, "until: %s", err)
	}
	return setKey(ctx, s, form, until, "held")
}

func releaseKey(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	return setKey(ctx, s, form, time.Now(), "released")
}

func setKey(ctx context.Context, s *Site, form url.Values, until time.Time, what string) (string, *retry, error) {
	id := form.Get("id")
	_, err := s.watcher.Sources().SetKey(ctx, id, form.Get("key"), view.KeyEdit{HeldUntil: &until})
	return quotas.page(id, what), nil, err
}
