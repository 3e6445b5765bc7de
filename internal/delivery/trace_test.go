package delivery

import (
	"strings"
	"testing"
)

func TestTraceState(t *testing.T) {
	wide := "a=" + strings.Repeat("x", 300)
	for _, c := range []struct {
		headers []string
		want    string
	}{
		{nil, ""}, {[]string{"a=1"}, "a=1"}, {[]string{" a=1 ,b@c=2 3", "", "d=4,,"}, "a=1 ,b@c=2 3,d=4"},
		{[]string{"a=1", "b=\r\nx: y"}, ""}, {[]string{"ü=1"}, ""},
		{[]string{wide}, wide}, {[]string{wide, "b" + wide}, ""},
	} {
		j := Job{Meta: Meta{TraceParent: "00-", Headers: []Header{{Key: "other", Value: []byte("x=1")}}}}
		for _, h := range c.headers {
			j.Headers = append(j.Headers, Header{Key: HeaderTraceState, Value: []byte(h)})
		}
		if got := j.TraceState(); got != c.want {
			t.Errorf("%q: %q, want %q", c.headers, got, c.want)
		}
		if j.TraceParent = ""; j.TraceState() != "" {
			t.Errorf("%q: a state without a parent", c.headers)
		}
	}
}
