package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/catalog"
)

// The states of a replay.
const (
	Running = "running"
	Done    = "done"
	Stopped = "stopped"
	Failed  = "failed"
)

// Book is where the processes of an installation tell each other of their replays, a *catalog.Admin.
type Book interface {
	SaveReplay(ctx context.Context, id string, job json.RawMessage, running bool) (stop bool, err error)
	Replays(ctx context.Context) ([]catalog.ReplayRow, error)
	StopReplay(ctx context.Context, id string) (asked bool, err error)
}

const (
	// beatEvery is how often a running replay writes its progress and reads whether to stop.
	beatEvery = 2 * time.Second
	// bookWithin bounds one use of the book.
	bookWithin = 2 * time.Second
)

// Share makes the replays known to other processes, and theirs known here. It must be called before the Jobs are used.
func (j *Jobs) Share(book Book) { j.book = book }

// follow writes a replay into the book until the function that it returns is called, which writes how it has ended.
func (j *Jobs) follow(ctx context.Context, stop context.CancelFunc, job *Job) (ended func()) {
	if j.book == nil {
		return func() {}
	}
	over := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for failing := false; ; {
			asked, err := j.save(ctx, job)
			if err != nil && !failing {
				j.log.Warn("a replay cannot be shown to other processes", "replay", job.ID, "error", err)
			}
			if failing = err != nil; asked {
				stop()
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		writing.Wait()
		if _, err := j.save(ctx, job); err != nil {
			j.log.Warn("other processes cannot be told how a replay has ended", "replay", job.ID, "error", err)
		}
	}
}

// save writes a replay into the book. It returns whether to stop.
func (j *Jobs) save(ctx context.Context, job *Job) (stop bool, err error) {
	j.mu.Lock()
	now := *job
	j.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookWithin)
	defer cancel()
	text, err := json.Marshal(&now)
	if err != nil {
		return false, fmt.Errorf("save a replay: %w", err)
	}
	return j.book.SaveReplay(ctx, now.ID, text, now.State == Running)
}

// Stop stops a replay that is running, here or elsewhere, and returns whether it is. Another process finishes within some seconds.
func (j *Jobs) Stop(id string) bool {
	j.mu.Lock()
	mine := slices.IndexFunc(j.list, func(job *Job) bool { return job.ID == id })
	running := mine >= 0 && j.list[mine].State == Running
	if running {
		j.stop()
	}
	j.mu.Unlock()
	if mine >= 0 || j.book == nil {
		return running
	}
	ctx, cancel := context.WithTimeout(context.Background(), bookWithin)
	defer cancel()
	asked, err := j.book.StopReplay(ctx, id)
	if err != nil {
		j.log.Warn("a replay of another process cannot be stopped", "replay", id, "error", err)
	}
	return asked
}

// Booked returns the replays of all processes that the book has.
func (j *Jobs) Booked(ctx context.Context) ([]catalog.ReplayRow, error) {
	if j.book == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, bookWithin)
	defer cancel()
	return j.book.Replays(ctx)
}

// List returns the replays, the newest first: those of this process as they are now, and those that the book had.
func (j *Jobs) List(booked []catalog.ReplayRow) []Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]Job, 0, len(j.list)+len(booked))
	for _, job := range j.list {
		list = append(list, *job)
	}
	for _, row := range booked {
		var job Job
		if json.Unmarshal(row.Job, &job) != nil || slices.ContainsFunc(j.list, func(mine *Job) bool { return mine.ID == job.ID }) {
			continue
		}
		if row.Lost {
			job.State, job.Error = Failed, "the process that ran it has ended, or cannot reach the database"
		}
		list = append(list, job)
	}
	slices.SortStableFunc(list, func(a, b Job) int { return b.Started.Compare(a.Started) })
	return slices.Clip(list)
}
