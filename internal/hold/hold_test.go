package hold

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) // a Friday

// campaign is one that nothing holds: 10/s, under a quota with two windows.
func campaign() *delivery.Campaign {
	return &delivery.Campaign{
		ID: "spring", Status: delivery.StatusActive, Rate: delivery.PerSecond(10), PriorityWeight: 1,
		Quotas: []*delivery.Quota{{ID: "provider", Windows: []delivery.Window{
			{Span: time.Minute, Limit: 300}, {Span: time.Hour, Limit: 15_750},
		}}},
	}
}

// evidence of a campaign whose jobs are being sent.
func evidence() Evidence {
	return Evidence{
		Now: now, Campaign: campaign(), Sink: "receiver",
		Windows: Windows([]delivery.WindowState{{Quota: "provider", Window: 0, Remaining: 7}, {Quota: "provider", Window: 1, Remaining: 7}}),
		Board:   &Board{Daemons: 3, Backlog: delivery.Backlog{Waiting: 100}, InMemory: 20, Lanes: []int{17}, LanesRead: true},
	}
}

func hours(t *testing.T, from, to int) *delivery.ActiveHours {
	t.Helper()
	h, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: from, To: to}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func whyOf(a Answer) string {
	why, _ := a.Words()
	return why
}

func remedyOf(a Answer) string {
	_, remedy := a.Words()
	return remedy
}

// TestEveryCause: each cause is found, says when it ends where that is known, and names its remedy.
func TestEveryCause(t *testing.T) {
	in := func(d time.Duration) time.Time { return now.Add(d) }
	seen := map[Cause]bool{None: true}
	for name, tc := range map[string]struct {
		change func(*Evidence)
		cause  Cause
		until  time.Time
		why    string // a part of it
		remedy string
	}{
		"invalid": {func(e *Evidence) { e.Campaign.Invalid = "burst must not be negative" }, Invalid, time.Time{},
			"its row cannot be used: burst must not be negative", "pacer campaign set spring"},
		"cancelled": {func(e *Evidence) { e.Campaign.Status = delivery.StatusCancelled }, Cancelled, time.Time{},
			"it is cancelled", "pacer campaign resume spring"},
		"completed": {func(e *Evidence) { e.Campaign.Status = delivery.StatusCompleted }, Completed, time.Time{},
			"its jobs expire", "pacer campaign resume spring"},
		"ended": {func(e *Evidence) { e.Campaign.EndsAt = in(-time.Hour) }, Ended, time.Time{},
			"it ended at 2026-11-20T11:00:00Z", "--ends-at none"},
		"paused": {func(e *Evidence) { e.Campaign.Status = delivery.StatusPaused }, Paused, time.Time{},
			"it is paused", "pacer campaign resume spring"},
		"paused for a time": {func(e *Evidence) {
			e.Campaign.Status, e.Campaign.PausedUntil = delivery.StatusPaused, in(time.Hour)
		}, Paused, in(time.Hour), "it is paused until 2026-11-20T13:00:00Z", "wait, or pacer campaign resume spring"},
		"rate": {func(e *Evidence) { e.Campaign.Rate = delivery.Rate{} }, Rate, time.Time{},
			"its rate is 0", "pacer campaign set spring --rate 100"},
		"sink": {func(e *Evidence) { e.Sink, e.SinkFault = "", "its sink typo is not configured" }, Sink, time.Time{},
			"its sink typo is not configured", "pacer campaign set spring --sink NAME"},
		"refused": {func(e *Evidence) { e.Board.Stuck = Refused }, Refused, time.Time{},
			"its sink receiver refused many of its jobs in a row", "pacer campaign resume spring"},
		"no daemon": {func(e *Evidence) { e.Board.Daemons = 0 }, Daemons, time.Time{}, "no daemon runs", "start pacer run"},
		"quota, after a loss": {func(e *Evidence) {
			e.Stores = map[int]time.Time{0: in(-20 * time.Second)}
			e.Windows["provider"][0] = delivery.WindowState{Quota: "provider", FreeAt: in(42 * time.Second).UnixMicro()}
		}, Quota, in(42 * time.Second), "its quota provider counts as used up until 2026-11-20T12:00:42Z: Redis has lost its data, or began anew, at 2026-11-20T11:59:40Z", "wait"},
		"quota, used up after a loss": {func(e *Evidence) {
			e.Stores = map[int]time.Time{0: in(-80 * time.Second)}
			e.Windows["provider"][0] = delivery.WindowState{Quota: "provider", FreeAt: in(42 * time.Second).UnixMicro()}
		}, Quota, in(42 * time.Second), "its quota provider is used up until", "raise the limit"},
		"quota of an hour, after a loss": {func(e *Evidence) {
			e.Stores = map[int]time.Time{0: in(-20 * time.Second)}
			e.Windows["provider"][1] = delivery.WindowState{Quota: "provider", Window: 1, FreeAt: in(42 * time.Second).UnixMicro()}
		}, Quota, in(42 * time.Second), "its quota provider is used up until", "raise the limit"},
		"after a heavy job": {func(e *Evidence) { e.Board.Turn, e.Board.Idle = in(time.Minute), time.Minute }, Turn, in(time.Minute),
			"it waits for its rate until 2026-11-20T12:01:00Z", "wait"},
		"just after a heavy job": {func(e *Evidence) { e.Board.Turn = in(time.Minute) }, Turn, in(time.Minute),
			"it waits for its rate until 2026-11-20T12:01:00Z", "wait"},
		"kafka": {func(e *Evidence) { e.Board.Kafka, e.Board.Idle, e.Board.InMemory = in(-time.Minute), time.Minute, 0 }, Kafka, time.Time{},
			"Kafka does not answer the daemons", "bring Kafka back"},
		"start": {func(e *Evidence) { e.Campaign.StartsAt = in(time.Hour) }, Start, in(time.Hour),
			"it begins at 2026-11-20T13:00:00Z", "--starts-at none"},
		"start, and then out of hours": {func(e *Evidence) {
			e.Campaign.StartsAt, e.Campaign.Hours = in(time.Hour), hours(t, 18*60, 20*60)
		}, Start, in(6 * time.Hour), "it begins at 2026-11-20T18:00:00Z", "--starts-at none"},
		"hours": {func(e *Evidence) { e.Campaign.Hours = hours(t, 9*60, 11*60) }, Hours, in(21 * time.Hour),
			"outside its active hours until 2026-11-21T09:00:00Z", "--active-hours none"},
		"throttled": {func(e *Evidence) { e.Gates = []delivery.Gate{{Sink: "receiver", Until: in(time.Minute)}} }, Gate, in(time.Minute),
			"the gate of its sink receiver is closed until 2026-11-20T12:01:00Z, as the destination asked", "pacer sink open receiver"},
		"throttled for a moment": {func(e *Evidence) { e.Gates = []delivery.Gate{{Sink: "receiver", Until: in(time.Second)}} }, Gate, time.Time{},
			"closed, as the destination asked to wait; one job a second is tried", "wait; the first job that it takes opens the gate"},
		"failing": {func(e *Evidence) {
			e.Gates = []delivery.Gate{{Sink: "receiver", Cause: delivery.GateFailing, Until: in(time.Second)}}
		}, Gate, time.Time{}, "as the sink does not work; one job a second is tried", "repair the destination"},
		"misconfigured": {func(e *Evidence) {
			e.Gates = []delivery.Gate{{Sink: "receiver", Cause: delivery.GateMisconfigured, Until: in(-time.Second)}}
		}, Gate, time.Time{}, "refuses the credentials or the settings", "correct sinks.receiver"},
		"store":                  {func(e *Evidence) { e.Store, e.Windows = true, nil }, Store, time.Time{}, "Redis", "bring Redis back"},
		"store, without a quota": {func(e *Evidence) { e.Store, e.Campaign.Quotas = true, nil }, Store, time.Time{}, "Redis", "bring Redis back"},
		"store, and a quota of mode eventual": {func(e *Evidence) {
			e.Store, e.Campaign.Quotas[0].Mode, e.Campaign.Quotas[0].OnStoreFailure = true, delivery.ModeEventual, delivery.PolicyOpen
		}, Store, time.Time{}, "Redis", "bring Redis back"},
		"store, which the dedupe ledger needs": {func(e *Evidence) {
			e.Store, e.Ledger, e.Windows, e.Campaign.Quotas[0].OnStoreFailure = true, true, nil, delivery.PolicyOpen
		}, Store, time.Time{}, "Redis", "bring Redis back"},
		"store, which its keyed quota needs": {func(e *Evidence) {
			e.Store, e.Windows, e.Campaign.Quotas[0].OnStoreFailure = true, nil, delivery.PolicyLocalShare
			e.Campaign.Keyed = []*delivery.Quota{{ID: "cap", Per: "to", Windows: e.Campaign.Quotas[0].Windows}}
		}, Store, time.Time{}, "Redis", "bring Redis back"},
		"the shard of its quota": {func(e *Evidence) { delete(e.Windows, "provider") }, Store, time.Time{}, "Redis", "bring Redis back"},
		"quota": {func(e *Evidence) {
			e.Windows["provider"][0].Remaining, e.Windows["provider"][0].FreeAt = 0, in(20*time.Second).UnixMicro()
			e.Windows["provider"][1].Remaining, e.Windows["provider"][1].FreeAt = 0, in(40*time.Minute).UnixMicro()
		}, Quota, in(40 * time.Minute), "its quota provider is used up until 2026-11-20T12:40:00Z: its window is 15750/1h", "pacer quota set provider --window"},
		"quota, where no daemon says that anything waits": {func(e *Evidence) {
			e.Board = nil
			e.Windows["provider"][0] = delivery.WindowState{Quota: "provider", FreeAt: in(time.Minute).UnixMicro()}
		}, Quota, in(time.Minute), "its quota provider is used up", "pacer quota set provider"},
		"quota of nothing": {func(e *Evidence) {
			e.Campaign.Quotas[0].Windows[0].Limit, e.Windows["provider"][0].Remaining = 0, 0
			e.Windows["provider"][1].Remaining, e.Windows["provider"][1].FreeAt = 0, in(40*time.Minute).UnixMicro()
		}, Quota, time.Time{}, "its quota provider allows nothing: the limit of its window 1m is 0", "pacer quota set provider"},
		"quota of mode eventual": {func(e *Evidence) { e.Campaign.Quotas[0].Mode, e.Board.Idle = delivery.ModeEventual, time.Minute },
			Share, time.Time{}, "seems to be used up, or none of eventual.roots answers", "pacer quota set provider"},
		"quota that others use": {func(e *Evidence) {
			e.Windows["provider"][0].Remaining, e.Windows["provider"][0].FreeAt = 0, in(time.Second).UnixMicro()
			e.Board.Idle = time.Minute
		}, Share, time.Time{}, "its quota provider has too few units for it", "pacer quota set provider"},
		"heavy jobs": {func(e *Evidence) { e.Board.Weight, e.Board.Idle = 1000, time.Minute },
			Share, time.Time{}, "its quota provider has too few units for it", "pacer quota set provider"},
		"fails alone": {func(e *Evidence) { e.Board.Stuck = Failing }, Failing, time.Time{},
			"its sink receiver fails its jobs, and those of no other campaign as far as is known", "the destination itself may be down"},
		"lane that no daemon reads": {func(e *Evidence) {
			e.Board.InMemory, e.Board.LanesRead, e.Board.Idle = 0, false, time.Minute
		}, Lane, time.Time{}, "no daemon reads its lane 17", "log"},
		"one of several lanes": {func(e *Evidence) {
			e.Board.Lanes, e.Board.InMemory, e.Board.Idle = []int{17, 18}, 0, time.Minute
		}, Lane, time.Time{}, "one of its lanes 17, 18 is held up", "pacer_partition_stalled"},
		"lane that is held up": {func(e *Evidence) { e.Board.InMemory, e.Board.Idle = 0, time.Minute }, Lane, time.Time{},
			"its lane 17 is held up", "pacer_partition_stalled"},
		"lane whose commit cannot be read": {func(e *Evidence) { e.Board.Backlog.Waiting, e.Board.LanesRead, e.Board.Unread = 0, false, []int{17} },
			Unreadable, time.Time{}, "nothing is read from its lane 17", "run the version"},
		"one of two lanes whose commit cannot be read": {func(e *Evidence) {
			e.Board.Lanes, e.Board.LanesRead, e.Board.Unread, e.Board.Idle = []int{17, 18}, false, []int{18}, time.Minute
		}, Unreadable, time.Time{}, "nothing is read from its lane 18", "run the version"},
		"last job in hand": {func(e *Evidence) {
			e.Board.Backlog.Waiting, e.Board.InMemory, e.Board.InHand, e.Board.LanesRead, e.Board.Idle = 1, 0, 1, false, time.Minute
		}, Unanswered, time.Time{}, "its sink receiver has 1 of its jobs in hand", "timeout"},
		"stalled": {func(e *Evidence) { e.Board.Idle = time.Minute }, Stalled, time.Time{}, "nothing known holds them", "closed or disabled, with pacer sink list; the log"},
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence()
			tc.change(&e)
			a := Of(e)
			seen[a.Cause] = true
			if a.Cause != tc.cause || !a.Until.Equal(tc.until) {
				t.Errorf("%q until %s, want %q until %s", a.Cause, a.Until, tc.cause, tc.until)
			}
			if !strings.Contains(whyOf(a), tc.why) || !strings.Contains(remedyOf(a), tc.remedy) {
				t.Errorf("%q, to do %q", whyOf(a), remedyOf(a))
			}
			if s := Sentence(a.Campaign, a.Waiting, whyOf(a), remedyOf(a)); strings.Count(s, "\n") > 0 || !strings.HasPrefix(s, "Campaign spring sends nothing because ") || !strings.HasSuffix(s, ".") {
				t.Errorf("%q", s)
			}
		})
	}
	for _, c := range Causes {
		if !seen[c] {
			t.Errorf("no case for %q", c)
		}
	}
}

// TestNothingHoldsIt: what only slows a campaign down, or is about another one, is no cause.
func TestNothingHoldsIt(t *testing.T) {
	for name, change := range map[string]func(*Evidence){
		"all is well":              func(*Evidence) {},
		"nothing is known":         func(e *Evidence) { e.Windows, e.Board, e.Gates, e.Sink = nil, nil, nil, "" },
		"the gate of another sink": func(e *Evidence) { e.Gates = []delivery.Gate{{Sink: "other", Until: now.Add(time.Hour)}} },
		"a quota that slows it down": func(e *Evidence) {
			e.Windows["provider"][0].Remaining, e.Windows["provider"][0].FreeAt = 0, now.Add(time.Second).UnixMicro()
		},
		"a quota in shadow mode": func(e *Evidence) {
			e.Campaign.Quotas[0].Mode, e.Windows["provider"][1].Remaining = delivery.ModeShadow, 0
		},
		"a quota that exempts all": func(e *Evidence) { e.Campaign.Quotas[0].Exempt, e.Windows["provider"][1].Remaining = 100, 0 },
		"a window that is gone":    func(e *Evidence) { e.Windows["provider"] = []delivery.WindowState{{Quota: "provider", Window: 2}} },
		"a quota of mode eventual": func(e *Evidence) { e.Campaign.Quotas[0].Mode, e.Windows = delivery.ModeEventual, Windows(nil) },
		"a store that need not count": func(e *Evidence) {
			e.Store, e.Windows, e.Campaign.Quotas[0].OnStoreFailure = true, nil, delivery.PolicyOpen
		},
		"a store that its keyed quota need not ask": func(e *Evidence) {
			e.Store, e.Windows, e.Campaign.Quotas[0].OnStoreFailure = true, nil, delivery.PolicyOpen
			e.Campaign.Keyed = []*delivery.Quota{{ID: "cap", Per: "to", OnStoreFailure: delivery.PolicyOpen, Windows: e.Campaign.Quotas[0].Windows}}
		},
		"a shard that has other campaigns": func(e *Evidence) { e.Store, e.Board = true, nil },
		"the store, and a quota that is tried out": func(e *Evidence) {
			e.Store, e.Windows, e.Campaign.Quotas[0].OnStoreFailure = true, nil, delivery.PolicyOpen
			e.Campaign.Quotas = append(e.Campaign.Quotas, &delivery.Quota{ID: "tried", Mode: delivery.ModeShadow, Windows: e.Campaign.Quotas[0].Windows})
		},
		"only jobs that cannot be sent yet": func(e *Evidence) { e.Board.Early, e.Board.Idle = e.Board.Backlog.Waiting, time.Hour },
		"a used-up quota that nothing waits for": func(e *Evidence) {
			e.Board.Backlog.Waiting = 0
			e.Windows["provider"][0] = delivery.WindowState{Quota: "provider", FreeAt: now.Add(time.Minute).UnixMicro()}
		},
		"nothing waits":            func(e *Evidence) { e.Board = &Board{Daemons: 1, Idle: time.Hour} },
		"it was idle for a moment": func(e *Evidence) { e.Board.Idle = stallAfter - 1 },
		"one an hour":              func(e *Evidence) { e.Campaign.Rate, e.Board.Idle = perHour(t), 2*time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence()
			change(&e)
			if a := Of(e); a.Cause != None || whyOf(a) != "" || remedyOf(a) != "" || !strings.HasPrefix(Sentence(a.Campaign, a.Waiting, whyOf(a), remedyOf(a)), "Nothing holds") {
				t.Errorf("%q: %s", a.Cause, Sentence(a.Campaign, a.Waiting, whyOf(a), remedyOf(a)))
			}
		})
	}
	e := evidence()
	rolled := e.Campaign.Quotas[0]
	for rolled.Covers(e.Campaign.ID) {
		rolled.Exempt++
	}
	e.Windows["provider"][1] = delivery.WindowState{Quota: "provider", Window: 1, FreeAt: now.Add(time.Hour).UnixMicro()}
	if a := Of(e); a.Cause != None || !rolled.Binds() {
		t.Errorf("a quota that is rolled out to others: %s", Sentence(a.Campaign, a.Waiting, whyOf(a), remedyOf(a)))
	}
	e.Board.Idle = 2 * stallAfter
	e.Campaign.Quotas = append(e.Campaign.Quotas, &delivery.Quota{ID: "tried", Mode: delivery.ModeShadow,
		Windows: []delivery.Window{{Span: 24 * time.Hour, Limit: 1}}})
	e.Windows["tried"] = []delivery.WindowState{{Quota: "tried", Remaining: 1}}
	if a := Of(e); a.Cause != Stalled {
		t.Errorf("nothing for a minute, and a quota in shadow mode that would allow one a day: %q", a.Cause)
	}
	e = evidence()
	e.Campaign.Rate, e.Board.Idle = perHour(t), 4*time.Hour
	if a := Of(e); a.Cause != Stalled {
		t.Errorf("one an hour, and nothing for four: %q", a.Cause)
	}
}

func perHour(t *testing.T) delivery.Rate {
	t.Helper()
	rate, err := delivery.NewRate(1_000_000, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

// TestSinceWhen: the time comes from the schedule, else from an earlier look with the same cause.
func TestSinceWhen(t *testing.T) {
	e := evidence()
	e.Campaign.Status, e.Board.Held, e.Board.Since = delivery.StatusPaused, Paused, now.Add(-time.Hour)
	if a := Of(e); !a.Since.Equal(now.Add(-time.Hour)) {
		t.Errorf("paused since %s", a.Since)
	}
	e.Board.Held = Gate
	if a := Of(e); !a.Since.IsZero() {
		t.Errorf("paused since %s, when its gate was closed", a.Since)
	}
	e.Campaign.Status, e.Campaign.EndsAt = delivery.StatusActive, now.Add(-time.Minute)
	if a := Of(e); !a.Since.Equal(e.Campaign.EndsAt) {
		t.Errorf("ended at %s", a.Since)
	}
}

// TestOneInstantIsShownOnce: the sentence and the figure beside it name the same second.
func TestOneInstantIsShownOnce(t *testing.T) {
	e, until := evidence(), now.Add(time.Minute+100*time.Millisecond)
	e.Gates = []delivery.Gate{{Sink: "receiver", Until: until}}
	a := Of(e)
	if a.Until.Before(until) || !a.Until.Equal(a.Until.Truncate(time.Second)) || !strings.Contains(whyOf(a), "until "+a.Until.Format(time.RFC3339)) {
		t.Errorf("until %s: %s", a.Until, whyOf(a))
	}
}

// TestWhatTheSinkAnswers: where the destination holds a campaign, its last failure is said, and where anything else does, not.
func TestWhatTheSinkAnswers(t *testing.T) {
	for cause, change := range map[Cause]func(*Evidence){
		Failing:    func(e *Evidence) { e.Board.Stuck = Failing },
		Refused:    func(e *Evidence) { e.Board.Stuck = Refused },
		Unanswered: func(e *Evidence) { e.Board.Idle, e.Board.InHand = time.Hour, 3 },
		Gate: func(e *Evidence) {
			e.Gates = []delivery.Gate{{Sink: "receiver", Cause: delivery.GateFailing, Until: now.Add(time.Second)}}
		},
		Paused: func(e *Evidence) { e.Campaign.Status = delivery.StatusPaused },
	} {
		e := evidence()
		change(&e)
		quiet := Of(e)
		e.Failure = delivery.Failure{At: now.Add(-2 * time.Second), Detail: "HTTP 401 Unauthorized"}
		a := Of(e)
		want := whyOf(quiet) + "; the last failure of the sink, at 2026-11-20T11:59:58Z: HTTP 401 Unauthorized"
		if cause == Paused {
			want = whyOf(quiet)
		}
		if a.Cause != cause || whyOf(a) != want {
			t.Errorf("%s: %s %q, want %q", cause, a.Cause, whyOf(a), want)
		}
	}
}

// TestWhatHoldsACampaignOfADestinationThatTakesNothing: it is the destination, with its own answer, once nothing else is left to send. The job that
// each daemon tries changes nothing.
func TestWhatHoldsACampaignOfADestinationThatTakesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		early, inFlight, ready int64
		held                   Cause // before
		want                   Cause
	}{
		"all of it waits":             {early: 100, want: Gate},
		"one is tried":                {early: 99, inFlight: 1, want: Gate},
		"one is to be tried":          {early: 99, ready: 1, held: Gate, want: Gate},
		"others are sent":             {early: 50, ready: 50},
		"others are sent once more":   {early: 50, ready: 50, held: Gate},
		"one for another destination": {early: 99, ready: 1},
		"nothing is left":             {},
	} {
		e := evidence()
		*e.Board = Board{
			Daemons: 3, Stuck: Gate, Destination: "elm", Early: tc.early, Held: tc.held, LanesRead: true,
			Backlog: delivery.Backlog{Waiting: tc.early + tc.ready, InFlight: tc.inFlight},
		}
		e.Failure = delivery.Failure{At: now.Add(-2 * time.Second), Detail: "HTTP 500: upstream exploded"}
		a := Of(e)
		if a.Cause != tc.want {
			t.Errorf("%s: %q, want %q", name, a.Cause, tc.want)
		}
		const why = "its destination elm does not exist, does not work, asks to wait or is disabled, and keeps what is left; the last failure of elm, at 2026-11-20T11:59:58Z: HTTP 500: upstream exploded"
		if a.Cause == Gate && (whyOf(a) != why || remedyOf(a) != "create, repair or enable it: pacer destination show elm" || !a.Until.IsZero()) {
			t.Errorf("%s: %s; %s", name, whyOf(a), remedyOf(a))
		}
	}
}
