package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
)

// share lets the processes of an installation know of each other's requests and replays, and this one know what it may do.
func share(sources *view.Sources, admin *catalog.Admin) {
	sources.Keys, sources.ReadOnly = keys{changer{admin}}, changer{admin}.readOnly
	if sources.Replays != nil {
		sources.Replays.Share(book{admin})
	}
}

// keys implements view.Keys over the database.
type keys struct{ changer }

// Claim implements view.Keys.
func (k keys) Claim(ctx context.Context, r view.KeyedRequest) (view.KeyClaim, *view.KeptAnswer, error) {
	request := catalog.KeyedRequest(r)
	number, before, err := k.admin.ClaimKey(ctx, request)
	for _, kind := range []struct{ of, is error }{
		{catalog.ErrKeyReused, view.ErrKeyReused}, {catalog.ErrKeyInUse, view.ErrKeyInUse}, {catalog.ErrKeyUnfinished, view.ErrKeyUnfinished}, {catalog.ErrManyKeys, view.ErrBusy},
	} {
		if errors.Is(err, kind.of) {
			return nil, nil, view.Fault(kind.is, "%s", err)
		}
	}
	if err != nil {
		return nil, nil, k.explain(ctx, err)
	}
	if before == nil {
		return claim{k.admin, request, number}, nil, nil
	}
	answer := &view.KeptAnswer{Status: before.Status, Body: before.Body}
	if err := json.Unmarshal(before.Header, &answer.Header); err != nil {
		return nil, nil, fmt.Errorf("the answer that was kept cannot be read: %w", err)
	}
	return nil, answer, nil
}

// claim implements view.KeyClaim.
type claim struct {
	admin   *catalog.Admin
	request catalog.KeyedRequest
	number  int64
}

// Keep implements view.KeyClaim.
func (c claim) Keep(ctx context.Context, answer view.KeptAnswer) error {
	header, err := json.Marshal(answer.Header)
	if err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	return c.admin.KeepAnswer(ctx, c.request, c.number, catalog.KeptAnswer{Status: answer.Status, Header: header, Body: answer.Body})
}

// Leave implements view.KeyClaim.
func (c claim) Leave(ctx context.Context) error { return c.admin.LeaveKey(ctx, c.request, c.number) }

// Drop implements view.KeyClaim.
func (c claim) Drop(ctx context.Context) error { return c.admin.DropKey(ctx, c.request, c.number) }

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
