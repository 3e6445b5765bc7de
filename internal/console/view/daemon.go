package view

import "github.com/pacer/pacer/internal/progress"

// Daemon is one process of pacer, as it describes itself.
type Daemon struct {
	progress.Node

	Figures *DaemonFigures `json:"figures"`
}

// DaemonFigures are what a daemon tells of its work. Rates and quantiles are of the last minute, or since the daemon's start.
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

	Sinks []progress.SinkCalls `json:"sinks" doc:"the first 32 by name"`
}
