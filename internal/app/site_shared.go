package app

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
)

// share connects the console with the replays of other processes, and with the rights of this one.
func share(sources *view.Sources, admin *catalog.Admin) {
	sources.ReadOnly = changer{admin}.readOnly
	if sources.Replays != nil {
		sources.Replays.Share(book{admin})
	}
}

// book implements replay.Book over the database.
type book struct{ admin *catalog.Admin }

// Save implements replay.Book.
func (b book) Save(ctx context.Context, job *replay.Job) (stop bool, err error) {
	text, err := json.Marshal(job)
	if err != nil {
		return false, fmt.Errorf("save a replay: %w", err)
	}
	return b.admin.SaveReplay(ctx, job.ID, text, job.State == replay.Running)
}

// List implements replay.Book.
func (b book) List(ctx context.Context) ([]replay.Job, error) {
	rows, err := b.admin.Replays(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]replay.Job, 0, len(rows))
	for _, row := range rows {
		var job replay.Job
		if err := json.Unmarshal(row.Job, &job); err != nil {
			return nil, fmt.Errorf("read a replay: %w", err)
		}
		if row.Lost {
			job.State, job.Error = replay.Failed, "the process that ran it has ended, or cannot reach the database"
		}
		list = append(list, job)
	}
	return list, nil
}

// Stop implements replay.Book.
func (b book) Stop(ctx context.Context, id string) (bool, error) { return b.admin.StopReplay(ctx, id) }
