package limits

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/luaredis"
)

// mostWork is how many instructions one run of a script may execute: about 3 ms of Redis where most of them compute, and the
// others are commands and strings.
const mostWork = 200_000

// logOf is a window that remembers every unit.
func logOf(limit int64) []delivery.Window {
	return []delivery.Window{{Span: time.Hour, Limit: limit, Algorithm: delivery.AlgorithmLog}}
}

// filled returns the state of a quota with this many units taken in 50 minutes, each at another time.
func filled(t *testing.T, units int64, w []delivery.Window) string {
	in, client := luaredis.New()
	l, asks := newLua(t, client), with(1, w)
	for i := range units {
		l.Take(epoch+i*3000*second/units, "a", asks)
	}
	return in.Values[newKeys(l.prefix, 0).quota("q0")]
}

// fill gives each quota of the asks a state.
func fill(in *luaredis.Server, l *lua, asks []delivery.Ask, state string) {
	for i := range asks {
		for _, q := range asks[i].Campaign.Quotas {
			in.Values[newKeys(l.prefix, 0).quota(q.ID)] = state
		}
	}
}

// with returns asks of this many campaigns, each with its own quotas of these windows.
func with(campaigns int, quotas ...[]delivery.Window) (asks []delivery.Ask) {
	for i := range campaigns {
		c := campaign(1_000_000)
		c.ID = fmt.Sprint("c", i)
		for j, w := range quotas {
			q := &delivery.Quota{ID: fmt.Sprint("q", i, strings.Repeat("x", j)), Revision: 1, Windows: w}
			c.Quotas = append(c.Quotas, q)
		}
		asks = append(asks, ask(c, 1))
	}
	return asks
}

// competing lets as many daemons as a quota lists wait for the quota of the asks.
func competing(l *lua, begin int64, asks []delivery.Ask) {
	for _, before := range []int64{5 * second, 2 * second} { // refused at first, with a claim then
		for d := range int64(mostListed) {
			l.Take(begin-before+d, fmt.Sprint("d", d), asks[d:d+1])
		}
	}
	l.engine("d0").fleet = func() int64 { return mostListed }
}

// TestNoScriptWorksForLong counts the instructions of scripts that read, write, compare and remove the most: asks are divided into
// as many scripts as are needed, and what one script removes of a log is bounded.
func TestNoScriptWorksForLong(t *testing.T) {
	testservices.Simulation(t)
	const many = 72
	begin := epoch + 3000*second
	fullWindows, fullLog := filled(t, 300, smev), filled(t, 1000, logOf(1000))
	for name, prepare := range map[string]func(in *luaredis.Server, l *lua) []delivery.Ask{
		"timelines": func(*luaredis.Server, *lua) []delivery.Ask { return with(maxItems) },
		"weights": func(*luaredis.Server, *lua) []delivery.Ask {
			asks := with(many, smev)
			for i := range asks {
				asks[i].Want, asks[i].Weights = 2000, slices.Repeat([]int64{3}, 256)
			}
			return asks
		},
		"daemons": func(in *luaredis.Server, l *lua) []delivery.Ask {
			asks, k := with(many), newKeys(l.prefix, 0)
			for i := range asks {
				asks[i].Want = 100_000
			}
			for d := range int64(2 * mostListed) {
				l.Take(begin+second-1000+d, fmt.Sprint("d", d%mostListed), asks[:1])
			}
			for i := range asks {
				in.Values[k.timeline(asks[i].Campaign.ID)] = in.Values[k.timeline("c0")]
			}
			l.engine("d0").fleet = func() int64 { return mostListed }
			return asks
		},
		"windows": func(in *luaredis.Server, l *lua) []delivery.Ask {
			asks := with(many, smev)
			fill(in, l, asks, fullWindows)
			return asks
		},
		"logs": func(in *luaredis.Server, l *lua) []delivery.Ask {
			asks := with(many, logOf(1000))
			fill(in, l, asks, fullLog)
			return asks
		},
		"many logs of a campaign": func(in *luaredis.Server, l *lua) []delivery.Ask {
			asks := with(1, slices.Repeat([][]delivery.Window{logOf(1000)}, delivery.MaxQuotas)...)
			fill(in, l, asks, fullLog)
			return asks
		},
		"contenders": func(_ *luaredis.Server, l *lua) []delivery.Ask {
			asks := with(many, smev)
			for i := range asks {
				asks[i].Want, asks[i].Campaign.Quotas = 1000, asks[0].Campaign.Quotas
			}
			competing(l, begin, asks)
			return asks
		},
		"contenders for what there is": func(_ *luaredis.Server, l *lua) []delivery.Ask {
			asks := with(many, windows(100_000, time.Minute))
			for i := range asks {
				asks[i].Want, asks[i].Campaign.Quotas = 10_000, asks[0].Campaign.Quotas
			}
			competing(l, begin, asks)
			return asks
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, client := luaredis.New()
			in.Counts = true
			l, now := newLua(t, client), begin
			asks := prepare(in, l)
			var grants []delivery.Grant
			for _, what := range []string{"take", "take again", "hand back", "look", "take when most has left", "take when all has left"} {
				now += second
				in.Reset()
				switch what {
				case "hand back":
					for range 3 {
						l.Refund(now, grants)
					}
				case "look":
					var quotas []*delivery.Quota
					for i := range asks {
						quotas = append(quotas, asks[i].Campaign.Quotas...)
					}
					l.Peek(now, quotas)
				default:
					switch what {
					case "take when most has left": // all but the last unit of a log
						now = begin + 3596*second
					case "take when all has left":
						now += 40 * 24 * 3600 * second
					}
					for _, g := range l.Take(now, "d0", asks).Items {
						grants = append(grants, g.Grant())
					}
				}
				if in.Runs > 0 {
					t.Logf("%s: %d scripts, the longest of %d instructions, mean %d", what, in.Runs, in.Most, in.All/in.Runs)
				}
				if in.Most > mostWork || in.Runs > 0 && in.Most == 0 {
					t.Errorf("%s: %d instructions in one script", what, in.Most)
				}
			}
		})
	}
}

// TestWhatIsLeftInALogIsRemovedLater: one script does not remove all old units of the logs; the next script removes the rest.
func TestWhatIsLeftInALogIsRemovedLater(t *testing.T) {
	testservices.Simulation(t)
	in, client := luaredis.New()
	l, now := newLua(t, client), epoch+6590*second
	asks := with(1, slices.Repeat([][]delivery.Window{logOf(1000)}, 6)...)
	fill(in, l, asks, filled(t, 1000, logOf(1000)))
	asks[0].Want = 1000
	for try := 0; ; try++ {
		g := take1(l, now, "a", asks[0])
		if g.Units > 900 { // but the latest
			break
		}
		if g.Units > 0 || g.NextAt != now+quantum || try > 1 {
			t.Fatalf("try %d: %+v", try, g)
		}
		now = g.NextAt
	}
}
