package delivery

// Ask is one campaign's part of a take: what a daemon would like to reserve on the campaign's timeline. Units
// are counted in slots; a job of weight w needs w consecutive slots and goes at the first.
type Ask struct {
	Campaign *Campaign
	// Want is how many units the daemon could send: queued and not yet granted, bounded by free sink capacity.
	Want int64
	// Weights are the weights of the jobs at the head of the queue, in order; nil when all are 1. A grant ends at a
	// job boundary; jobs beyond the listed ones are not granted.
	Weights []int64
	// HeldUntil is the store time of the latest slot the daemon was granted and has not given back (0: none). The
	// timeline never falls back below it.
	HeldUntil int64
	// Horizon is how far ahead of now slots are granted, Quantum the stretch a daemon asks for at once, and
	// LateTolerance how late a slot may be used; microseconds.
	Horizon       int64
	Quantum       int64
	LateTolerance int64
	// Gate is the id of the sink's gate, "" for none.
	Gate string
}

// Binding says what kept a grant below what was wanted.
type Binding uint8

// The kinds of binding limit.
const (
	BindNone  Binding = iota // everything wanted was granted
	BindRate                 // the timeline: no more slots within the horizon, or the daemon's share
	BindQuota                // a quota window
	BindGate                 // the sink's gate is closed
	BindHeld                 // rate 0
)

// Granted is the answer to one Ask.
type Granted struct {
	Units int64 // slots granted, consecutive from First
	First Slot
	Rate  Rate // of the timeline the slots lie on: the newest revision the store has seen
	// Revision is the campaign revision in force in the store; higher than the caller's means that the caller's
	// catalog is stale.
	Revision int64
	// GrantedAt is the store time of the grant; a refund names it.
	GrantedAt int64
	// NextAt, when Units fell short of Want, is the store time at which asking again can first bring more.
	NextAt int64
	Bound  Binding
	// BoundQuota and BoundWindow name the binding window when Bound is BindQuota.
	BoundQuota  string
	BoundWindow int
	// Competitors is how many daemons, the caller included, compete for the campaign's slots; at least 1.
	Competitors int64
	// Windows are the states of the windows of the campaign's quotas, after the grant, in the order of the quotas
	// and their windows.
	Windows []WindowState
}

// WindowState is what one window of a quota looks like after a take or a peek.
type WindowState struct {
	Quota     string
	Window    int   // index into Quota.Windows
	Remaining int64 // units that could be granted now
	ResetAt   int64 // store time at which the window would be full again if nothing more were granted
}

// Grant is a stretch of slots a daemon holds: Units consecutive slots from First on a timeline of Rate.
type Grant struct {
	First     Slot
	Rate      Rate
	Units     int64
	GrantedAt int64
	Revision  int64
}

// Refund hands undispatched units of a grant back: Units slots from First on. Slots at the end of the timeline
// become free again; windows get back what was never sent, into the very bucket it came from.
type Refund struct {
	Campaign *Campaign
	Grant
}

// TakeReply answers a take. Items are in the order of the asks.
type TakeReply struct {
	Items []Granted
	Now   int64 // store time at which the (first) script ran; it lies between call and return on any clock
}
