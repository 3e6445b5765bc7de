package limits

import "errors"

// The scripts speak in little-endian unsigned integers of 1 to 7 bytes, as Lua's struct library packs them.

// put appends each number in n bytes. A number out of range is clamped: none can be, unless there is a fault outside
// the engine, and then a bound is safer than a remainder.
func put(b []byte, n int, values ...int64) []byte {
	most := int64(1)<<(8*n) - 1
	for _, v := range values {
		v = min(max(v, 0), most)
		for range n {
			b = append(b, byte(v))
			v >>= 8
		}
	}
	return b
}

var errShort = errors.New("the reply is too short")

// reader reads numbers from a reply.
type reader struct {
	rest string
	err  error
}

func (r *reader) next(n int) (v int64) {
	if len(r.rest) < n {
		r.rest, r.err = "", errShort
		return 0
	}
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | int64(r.rest[i])
	}
	r.rest = r.rest[n:]
	return v
}

// text reads n bytes.
func (r *reader) text(n int) string {
	if len(r.rest) < n {
		r.rest, r.err = "", errShort
		return ""
	}
	text := r.rest[:n]
	r.rest = r.rest[n:]
	return text
}
