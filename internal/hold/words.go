package hold

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// Answer says what holds a campaign. Why and Remedy put it into words.
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

// Why says in one clause what holds the campaign, and what its sink answered where it is that; "" if nothing does.
func (a *Answer) Why() string {
	why := a.what()
	if (a.Cause == Unanswered || a.Cause.Destination()) && a.failure.Detail != "" {
		why += "; the last failure of " + cmp.Or(a.destination, "the sink") + ", at " + LastFailure(a.failure)
	}
	return why
}

// LastFailure says when a sink last did not take a job, and why; "" if that is not known.
func LastFailure(f delivery.Failure) string {
	if f.Detail == "" {
		return ""
	}
	return instant(f.At) + ": " + f.Detail
}

func (a *Answer) what() string {
	switch a.Cause {
	case Invalid:
		return "its row cannot be used: " + a.detail
	case Cancelled:
		return "it is cancelled, and its jobs settle as cancelled"
	case Completed:
		return "it is completed, and its jobs expire"
	case Ended:
		return "it ended at " + instant(a.Since) + ", and its jobs expire"
	case Paused:
		if !a.Until.IsZero() {
			return "it is paused until " + instant(a.Until)
		}
		return "it is paused"
	case Rate:
		return "its rate is 0"
	case Sink:
		return a.detail
	case Refused:
		return fmt.Sprintf("its sink %s refused many of its jobs in a row and took none", a.sink)
	case Daemons:
		return "no daemon runs"
	case Kafka:
		return "Kafka does not answer the daemons, or refuses their login"
	case Start:
		return "it begins at " + instant(a.Until)
	case Hours:
		return "it is outside its active hours until " + instant(a.Until)
	case Gate:
		return a.gateWhy()
	case Store:
		return "the quota store (Redis) does not answer"
	case Quota:
		return a.quotaWhy()
	case Share:
		if a.quota.Mode == delivery.ModeEventual {
			return fmt.Sprintf("its quota %s of mode eventual seems to be used up, or none of eventual.roots answers, as the log of the daemons says", a.quota.ID)
		}
		return fmt.Sprintf("its quota %s has too few units for it; other campaigns may share it", a.quota.ID)
	case Failing:
		return fmt.Sprintf("its sink %s fails its jobs, and those of no other campaign as far as is known, so that one a second is tried", a.sink)
	case Lane:
		lane := "its lane " + notation.List(a.lanes)
		if len(a.lanes) > 1 {
			lane = "one of its lanes " + notation.List(a.lanes)
		}
		if !a.read {
			return "no daemon reads " + lane
		}
		return lane + " is held up: its jobs are not read"
	case Unreadable:
		return "nothing is read from its lane " + notation.List(a.lanes) + ", since what was committed for it cannot be read"
	case Unanswered:
		return fmt.Sprintf("its sink %s has %d of its jobs in hand and has answered none lately", a.sink, a.inHand)
	case Turn:
		return "it waits for its rate until " + instant(a.Until) + ", since what was sent before has used the slots up to then"
	case Stalled:
		return "its jobs are in the memory of a daemon and none is sent, though nothing known holds them"
	}
	return ""
}

func (a *Answer) gateWhy() string {
	if a.destination != "" {
		return fmt.Sprintf("its destination %s does not exist, does not work or is disabled, and keeps what is left", a.destination)
	}
	why := fmt.Sprintf("the gate of its sink %s is closed", a.sink)
	if !a.Until.IsZero() {
		why += " until " + instant(a.Until)
	}
	switch a.gate {
	case delivery.GateThrottled:
		why += ", as the destination asked to wait"
	case delivery.GateMisconfigured:
		why += ", as the destination refuses the credentials or the settings of the sink"
	default:
		why += ", as the sink does not work"
	}
	if a.Until.IsZero() {
		why += "; one job a second is tried"
	}
	return why
}

func (a *Answer) quotaWhy() string {
	if a.window.Limit == 0 {
		return fmt.Sprintf("its quota %s allows nothing: the limit of its window %s is 0", a.quota.ID, notation.FormatSpan(a.window.Span))
	}
	if !a.lost.IsZero() {
		return fmt.Sprintf("its quota %s counts as used up until %s: Redis has lost its data, or began anew, at %s, and what was sent in the %s before is not known",
			a.quota.ID, instant(a.Until), instant(a.lost), notation.FormatSpan(a.window.Span))
	}
	return fmt.Sprintf("its quota %s is used up until %s: its window is %s", a.quota.ID, instant(a.Until), notation.FormatWindow(a.window))
}

// Remedy says what to do about it; "" if there is nothing to do.
func (a *Answer) Remedy() string {
	set := "pacer campaign set " + a.Campaign
	switch a.Cause {
	case Invalid:
		return "correct the row: " + set
	case Cancelled, Completed:
		return "to send new jobs: pacer campaign resume " + a.Campaign
	case Ended:
		return "to send new jobs: " + set + " --ends-at none"
	case Paused:
		resume := "pacer campaign resume " + a.Campaign
		if !a.Until.IsZero() {
			return "wait, or " + resume
		}
		return resume
	case Rate:
		return set + " --rate 100"
	case Sink:
		return "add it under sinks and restart the daemons, or set another: " + set + " --sink NAME"
	case Refused:
		return fmt.Sprintf("see pacer dead list --campaign %s --reason refused, repair, then pacer campaign resume %s", a.Campaign, a.Campaign)
	case Daemons:
		return "start pacer run"
	case Kafka:
		return "bring Kafka back, or correct kafka.sasl; the log of the daemons says what it answers"
	case Turn:
		return "wait; a heavy job takes the slots of as many light ones"
	case Start:
		return "wait, or " + set + " --starts-at none"
	case Hours:
		return "wait, or " + set + " --active-hours none --avoid-minutes none"
	case Gate:
		return a.gateRemedy()
	case Store:
		return "bring Redis back; the log of the daemons says what it answers"
	case Quota, Share:
		if !a.lost.IsZero() {
			return "wait"
		}
		return fmt.Sprintf("wait, or raise the limit: pacer quota set %s --window", a.quota.ID)
	case Failing:
		return "if other campaigns send to this sink, compare their jobs; if none does, the destination itself may be down; " +
			"pacer_sink_seconds and the log say how it answers"
	case Unreadable:
		return "see the Error line of the daemon that has the lane: run the version that has written the offset, or reset it"
	case Unanswered:
		return fmt.Sprintf("wait for the timeout of sink %s, or look at its destination; pacer_sink_seconds says how long it takes", a.sink)
	case Stalled:
		return "see whether destinations of its sink are closed or disabled, with pacer sink list; the log of the daemons, and pacer_sink_seconds, " +
			"pacer_partition_stalled and pacer_requeue_outage, say more"
	case Lane:
		return "the log of the daemons, and pacer_sink_seconds, pacer_partition_stalled and pacer_requeue_outage, say more"
	}
	return ""
}

func (a *Answer) gateRemedy() string {
	switch {
	case a.destination != "":
		return "create, repair or enable it: pacer destination show " + a.destination
	case !a.Until.IsZero():
		return "wait, or open it: pacer sink open " + a.sink
	case a.gate == delivery.GateMisconfigured:
		return fmt.Sprintf("correct sinks.%s; the log of the daemons says what it answers", a.sink)
	}
	return "repair the destination; the first job that it takes opens the gate"
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
