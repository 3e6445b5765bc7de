package delivery

import "time"

// State is how far a request of several steps has come. It belongs to a job whose first step is done: such a job takes no
// slot and no unit of a quota any more. A State does not change once it is part of a job or a Result.
type State struct {
	Step  string    // the step that comes next; at most MaxStep bytes of printable ASCII
	Vars  []byte    // what the steps before have found out, as the sink writes it (JSON); at most MaxVars bytes, nil for nothing
	Began time.Time // when the first step began
	Waits int32     // how often the step has made the job wait: a poll
}

// Bounds of a State, in bytes. Its parts are headers of records.
const (
	MaxStep = 64
	MaxVars = 4096
)

// Valid reports whether the state can be written.
func (s *State) Valid() bool {
	return s != nil && s.Step != "" && len(s.Step) <= MaxStep && len(s.Vars) <= MaxVars && s.Waits >= 0 && printable(s.Step, '!')
}
