package delivery

// Destination is a row of pacer.destinations: where the jobs are sent that name it. It does not change once it is in a Snapshot.
type Destination struct {
	ID          string
	Sink        string // "" for any sink with destinations
	URL         string
	Headers     []DestinationHeader // in the order of their names
	Secrets     []string            // references to the secrets that sign requests, the newest first
	MaxInFlight int                 // calls at once in each daemon; 0 for as many as the sink has
	// DisabledAt is when it was disabled, 0 if it is enabled: its jobs wait.
	DisabledAt     Stamp
	DisabledReason string
	FailingSince   Stamp // since when it has not taken a job; 0: it works, or is not known
	Revision       int64
	// Renewed is how often it began anew: by another address, other headers or secrets, or when it was enabled. Notes of daemons about it
	// do not count. Disabling it does not either: calls under way still go to the same place.
	Renewed int64
}

// DestinationHeader is a header of the requests to a Destination. A value may be a reference.
type DestinationHeader struct{ Name, Value string }

// Disabled reports whether its jobs wait.
func (e *Destination) Disabled() bool { return e.DisabledAt != 0 }

// Serves reports whether a sink sends to it.
func (e *Destination) Serves(sink string) bool { return e.Sink == "" || e.Sink == sink }

// DestinationState is what is known of a destination, for metrics.
type DestinationState uint8

// The states. The first that applies counts.
const (
	DestinationDisabled DestinationState = iota
	DestinationFailing
	DestinationEnabled
)

// DestinationStates lists every state, for zero-initialising metrics.
var DestinationStates = [...]DestinationState{DestinationDisabled, DestinationFailing, DestinationEnabled}

func (s DestinationState) String() string { return [...]string{"disabled", "failing", "enabled"}[s] }

// State returns the destination's state.
func (e *Destination) State() DestinationState {
	switch {
	case e.Disabled():
		return DestinationDisabled
	case e.FailingSince != 0:
		return DestinationFailing
	}
	return DestinationEnabled
}
