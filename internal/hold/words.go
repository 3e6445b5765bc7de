package hold

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// Answer says what holds a campaign. Words puts it into words.
type Answer struct {
	Campaign string
	Cause    Cause
	Since    time.Time // zero: not known
	Until    time.Time // when it ends by itself; zero: not known, or never
	Waiting  int64     // jobs; 0 also if that is not known

	detail      string // Invalid, Sink: the fault
	sink        string
	destination string // Gate: whose it is; "": of the sink
	gate        delivery.GateCause
	quota       *delivery.Quota
	window      delivery.Window
	lanes       []int
	read        bool // daemons read all its lanes
	inHand      int64
	failure     delivery.Failure
	lost        time.Time // Quota: since when the store has its data, before which nothing is known of the window; zero: it is
}

// Words returns in one clause each what holds the campaign, with what its sink answered where it is that, and what to do about it. Both are ""
// if nothing holds it.
func (a *Answer) Words() (why, remedy string) {
	why, remedy = a.words()
	if (a.Cause == Unanswered || a.Cause.Destination()) && a.failure.Detail != "" {
		why += "; the last failure of " + cmp.Or(a.destination, "the sink") + ", at " + LastFailure(a.failure)
	}
	return why, remedy
}

// LastFailure says when a sink last did not take a job, and why; "" if that is not known.
func LastFailure(f delivery.Failure) string {
	if f.Detail == "" {
		return ""
	}
	return instant(f.At) + ": " + f.Detail
}

func (a *Answer) words() (why, remedy string) {
	set, resume := "pacer campaign set "+a.Campaign, "pacer campaign resume "+a.Campaign
	switch a.Cause {
	case Invalid:
		return "its row cannot be used: " + a.detail, "correct the row: " + set
	case Cancelled:
		return "it is cancelled, and its jobs settle as cancelled", "to send new jobs: " + resume
	case Completed:
		return "it is completed, and its jobs expire", "to send new jobs: " + resume
	case Ended:
		return "it ended at " + instant(a.Since) + ", and its jobs expire", "to send new jobs: " + set + " --ends-at none"
	case Paused:
		if !a.Until.IsZero() {
			return "it is paused until " + instant(a.Until), "wait, or " + resume
		}
		return "it is paused", resume
	case Rate:
		return "its rate is 0", set + " --rate 100"
	case Sink:
		return a.detail, "add it under sinks and restart the daemons, or set another: " + set + " --sink NAME"
	case Refused:
		return fmt.Sprintf("its sink %s refused many of its jobs in a row and took none", a.sink),
			fmt.Sprintf("see pacer dead list --campaign %s --reason refused, repair, then %s", a.Campaign, resume)
	case Daemons:
		return "no daemon runs", "start pacer run"
	case Kafka:
		return "Kafka does not answer the daemons, or refuses their login",
			"bring Kafka back, or correct kafka.sasl; the log of the daemons says what it answers"
	case Start:
		return "it begins at " + instant(a.Until), "wait, or " + set + " --starts-at none"
	case Hours:
		return "it is outside its active hours until " + instant(a.Until), "wait, or " + set + " --active-hours none --avoid-minutes none"
	case Gate:
		return a.gateWords()
	case Store:
		return "the quota store (Redis) does not answer", "bring Redis back; the log of the daemons says what it answers"
	case Quota:
		return a.quotaWords()
	case Share:
		if a.quota.Mode == delivery.ModeEventual {
			why = fmt.Sprintf("its quota %s of mode eventual seems to be used up, or none of eventual.roots answers, as the log of the daemons says",
				a.quota.ID)
		} else {
			why = fmt.Sprintf("its quota %s has too few units for it; other campaigns may share it", a.quota.ID)
		}
		return why, a.raise()
	case Failing:
		return fmt.Sprintf("its sink %s fails its jobs, and those of no other campaign as far as is known, so that one is tried now and then", a.sink),
			"if other campaigns send to this sink, compare their jobs; if none does, the destination itself may be down; " +
				"pacer_sink_seconds and the log say how it answers"
	case Lane:
		return a.laneWhy(), "the log of the daemons, and pacer_sink_seconds, pacer_partition_stalled and pacer_requeue_outage, say more"
	case Unreadable:
		return "nothing is read from its lane " + notation.List(a.lanes) + ", since what was committed for it cannot be read",
			"see the Error line of the daemon that has the lane: run the version that has written the offset, or reset it"
	case Unanswered:
		return fmt.Sprintf("its sink %s has %d of its jobs in hand and has answered none lately", a.sink, a.inHand),
			fmt.Sprintf("wait for the timeout of sink %s, or look at its destination; pacer_sink_seconds says how long it takes", a.sink)
	case Turn:
		return "it waits for its rate until " + instant(a.Until) + ", since what was sent before has used the slots up to then",
			"wait; a heavy job takes the slots of as many light ones"
	case Stalled:
		return "its jobs are in the memory of a daemon and none is sent, though nothing known holds them",
			"see whether destinations of its sink are closed or disabled, with pacer sink list; the log of the daemons, and pacer_sink_seconds, " +
				"pacer_partition_stalled and pacer_requeue_outage, say more"
	}
	return "", ""
}

func (a *Answer) laneWhy() string {
	lane := "its lane " + notation.List(a.lanes)
	if len(a.lanes) > 1 {
		lane = "one of its lanes " + notation.List(a.lanes)
	}
	if !a.read {
		return "no daemon reads " + lane
	}
	return lane + " is held up: its jobs are not read"
}

func (a *Answer) gateWords() (why, remedy string) {
	if a.destination != "" {
		return fmt.Sprintf("its destination %s does not exist, does not work, asks to wait or is disabled, and keeps what is left", a.destination),
			"create, repair or enable it: pacer destination show " + a.destination
	}
	because, tried := "as the sink does not work", "; one job a second is tried"
	remedy = "repair the destination; the first job that it takes opens the gate"
	switch a.gate {
	case delivery.GateThrottled:
		because, remedy = "as the destination asked to wait", "wait; the first job that it takes opens the gate"
	case delivery.GateMisconfigured:
		because = "as the destination refuses the credentials or the settings of the sink"
		remedy = fmt.Sprintf("correct sinks.%s; the log of the daemons says what it answers", a.sink)
	}
	until := ""
	if !a.Until.IsZero() {
		until, tried, remedy = " until "+instant(a.Until), "", "wait, or open it: pacer sink open "+a.sink
	}
	return fmt.Sprintf("the gate of its sink %s is closed%s, %s%s", a.sink, until, because, tried), remedy
}

func (a *Answer) quotaWords() (why, remedy string) {
	switch {
	case a.window.Limit == 0:
		why = fmt.Sprintf("its quota %s allows nothing: the limit of its window %s is 0", a.quota.ID, notation.FormatSpan(a.window.Span))
	case !a.lost.IsZero():
		return fmt.Sprintf("its quota %s counts as used up until %s: Redis has lost its data, or began anew, at %s, and what was sent in the %s before is not known",
			a.quota.ID, instant(a.Until), instant(a.lost), notation.FormatSpan(a.window.Span)), "wait"
	default:
		why = fmt.Sprintf("its quota %s is used up until %s: its window is %s", a.quota.ID, instant(a.Until), notation.FormatWindow(a.window))
	}
	return why, a.raise()
}

// raise is what helps against a quota.
func (a *Answer) raise() string {
	return fmt.Sprintf("wait, or raise the limit: pacer quota set %s --window", a.quota.ID)
}

// Sentence returns one sentence: whether a campaign sends, else the cause and the remedy. waiting counts its jobs, 0 if unknown; why and
// remedy come from an Answer and are "" if nothing holds it.
func Sentence(campaign string, waiting int64, why, remedy string) string {
	switch {
	case why == "" && waiting == 0:
		return fmt.Sprintf("Nothing holds campaign %s.", campaign)
	case why == "":
		return fmt.Sprintf("Nothing holds campaign %s, and its jobs are sent as its rate, its quotas and its destinations allow.", campaign)
	}
	return fmt.Sprintf("Campaign %s sends nothing because %s; to do: %s.", campaign, why, remedy)
}

// instant formats a time; fractions of a second tell nothing here.
func instant(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }
