package progress

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestPartsComeBack: all that a part has is read as it was written. A part that is cut is not read.
func TestPartsComeBack(t *testing.T) {
	p, want := &part{}, &part{}
	fill(reflect.ValueOf(p).Elem(), new(int64))
	fill(reflect.ValueOf(want).Elem(), new(int64))
	want.Format = format
	b := p.encode()
	if got, err := decodePart(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	for cut := 0; cut < len(b); cut += 37 {
		if got, err := decodePart(b[:cut]); err == nil {
			t.Fatalf("%d of %d bytes are read as %+v", cut, len(b), got)
		}
	}
}

// fill gives everything in a value a number of its own. It panics at a field that is not exported, which would not be sent.
func fill(v reflect.Value, n *int64) {
	*n++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.UnixMicro(*n)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(strconv.FormatInt(*n, 10))
	case reflect.Float64:
		v.SetFloat(float64(*n) / 4)
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		v.SetInt(*n)
	}
}

// Bytes from outside never panic and never cost more memory than they are worth.
func FuzzPart(f *testing.F) {
	f.Add([]byte{1, 2})
	f.Add((&part{Nodes: []Daemon{{Name: "a"}}, Sinks: []SinkReport{{Sink: "b"}}}).encode())
	f.Add((&part{Daemons: 3, Silent: []int{4}, Memory: map[uint64]memory{1: {Jobs: 2}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePart(b); err == nil {
			(&merger{}).merge([]reported{{part: p}})
			newBoard(time.Now(), p)
		}
	})
}

// TestSum: a lane counts once, as reported by its latest reader; memory counts while its daemon
// lives.
func TestSum(t *testing.T) {
	part := func(daemon string, age time.Duration, generation int32, direct int64, lanes map[int]int64) reported {
		p := &part{Lanes: delivery.LanesBacklog{Generation: generation}, Memory: map[uint64]memory{1: {Direct: direct, Jobs: direct + 2, Units: 3 * (direct + 2)}}}
		for lane, jobs := range lanes {
			p.Lanes.Lanes = append(p.Lanes.Lanes, delivery.LaneBacklog{
				Lane: lane, Waiting: []delivery.CampaignCount{{Campaign: 1, Jobs: jobs}},
			})
		}
		return reported{part: p, daemon: daemon, age: age}
	}
	for name, tc := range map[string]struct {
		parts []reported
		want  int64
	}{
		"nobody":                {nil, 0},
		"two, a lane each":      {[]reported{part("a", 0, 1, 5, map[int]int64{0: 100}), part("b", 0, 1, 7, map[int]int64{1: 200})}, 312},
		"killed, not yet taken": {[]reported{part("a", 0, 1, 5, map[int]int64{0: 100}), part("b", time.Minute, 1, 7, map[int]int64{1: 200})}, 305},
		"killed, taken over": {
			[]reported{part("a", 0, 2, 5, map[int]int64{0: 90, 1: 210}), part("b", 20*time.Second, 1, 7, map[int]int64{1: 200})}, 305,
		},
		"one has not joined again yet": {
			[]reported{part("a", 0, 2, 0, map[int]int64{0: 90, 1: 210}), part("b", 0, 1, 0, map[int]int64{1: 200})}, 300,
		},
		"the group was made anew": {
			[]reported{part("a", 0, 1, 0, map[int]int64{0: 90}), part("a'", time.Minute, 70, 0, map[int]int64{0: 200})}, 90,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := (&merger{}).merge(tc.parts).totals()[1]
			if got.waiting != tc.want {
				t.Errorf("%d wait, want %d", got.waiting, tc.want)
			}
			if got.Jobs > 0 && got.meanWeight() != 3 {
				t.Errorf("mean weight %f, want 3", got.meanWeight())
			}
		})
	}
}
