package progress

import "time"

// Daemon is one process of pacer, as it describes itself to those who look at the fleet.
type Daemon struct {
	Name     string    `json:"name" doc:"unique name of the process"`
	Host     string    `json:"host"`
	Address  string    `json:"address,omitempty" doc:"of its HTTP server"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Ready    bool      `json:"ready"`
	State    string    `json:"state" doc:"why it is not ready, or what is wrong although it is"`
	Revision int64     `json:"revision" doc:"of the catalog in force"`
	Lanes    int       `json:"lanes" doc:"that it reads"`
	InFlight int64     `json:"in_flight" doc:"jobs that sinks have not answered"`
	Queued   int64     `json:"queued" doc:"jobs in memory"`
	// KafkaAway is since when the daemon reads nothing since no broker answers it; zero: it reads.
	KafkaAway time.Time      `json:"-"`
	Figures   *DaemonFigures `json:"figures"`
}
