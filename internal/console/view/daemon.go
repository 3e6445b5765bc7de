package view

import "time"

// Daemon is one process of pacer, as it describes itself.
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

	Figures *DaemonFigures `json:"figures"`
}

// DaemonFigures are what a daemon tells of its work. What is per second, and quantiles, are of the last minute, or since it started.
type DaemonFigures struct {
	Ingress     int     `json:"ingress_partitions" doc:"that it reads"`
	Timers      int     `json:"timer_partitions" doc:"that it reads"`
	Stalled     int     `json:"partitions_stalled" doc:"that make no progress though they could"`
	BufferBytes int64   `json:"buffer_bytes" doc:"held for jobs and for fetches"`
	BufferMost  int64   `json:"max_buffer_bytes"`
	Quantum     float64 `json:"quantum_seconds" doc:"stretch of a campaign's timeline that is asked for at once"`
	Forfeited   float64 `json:"slots_forfeited_per_second" doc:"slots given up because they could not be used in time, over the last minute"`
	// How late are jobs that were passed to their sinks.
	LatenessP50 *float64 `json:"slot_lateness_p50_seconds,omitempty" doc:"how long after their slots jobs were passed to sinks within the last minute, within an eighth; absent if none was"`
	LatenessP99 *float64 `json:"slot_lateness_p99_seconds,omitempty" doc:"likewise"`

	Sinks []SinkCalls `json:"sinks" doc:"the first 32 by name"`
}

// SinkCalls are the calls of a daemon to one of its sinks.
type SinkCalls struct {
	Sink        string `json:"sink"`
	InFlight    int64  `json:"in_flight" doc:"jobs that it has not answered"`
	MaxInFlight int64  `json:"max_in_flight"`
}
