package notation

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes, written like 64MiB or 500kB.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{ // longest first, so that a suffix is cut once
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// ParseSize reads a whole number with an optional unit: B, kB, MB, GB, KiB, MiB, GiB, in any case.
func ParseSize(text string) (Size, error) {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		if n := len(number) - len(u.name); n > 0 && strings.EqualFold(number[n:], u.name) {
			number, factor = strings.TrimSpace(number[:n]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return 0, fmt.Errorf("%q is not a size; use one such as 64MiB", Shorten(text))
	}
	return Size(n * factor), nil
}

// String writes the size in the first of the units that is exact.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return "0B"
}
