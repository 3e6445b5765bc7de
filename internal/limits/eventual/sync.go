package eventual

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/shards"
)

//go:embed lua/*.lua
var sources embed.FS

var syncScript = shards.NewScript(sources, "lua/sync.lua")

// softKey is a quota's key in a root. All have one hash tag, so that one script can use them.
func (e *Quotas) softKey(quota string) string { return "{" + e.opt.KeyPrefix + "eventual}" + quota }

// report is the state of a quota sent to a root, and the windows of its answer.
type report struct {
	id      string
	own     int64
	windows []*softWindow
	args    []any
}

// sync reports all quotas to a root, in one round trip unless there are very many, and applies its answers.
func (e *Quotas) sync(ctx context.Context, r *root) {
	for part := range slices.Chunk(e.reports(), softBatch) {
		sent := e.now()
		answers, err := e.put(ctx, r, part)
		e.settle(ctx, r, part, answers, sent, err)
		if err != nil || ctx.Err() != nil {
			return
		}
	}
}

// reports returns the current state of the quotas to report, and removes those that are no longer used.
func (e *Quotas) reports() []report {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []report
	for id, s := range e.quotas {
		switch idle := time.Duration(now - s.asked); {
		case idle > softForget:
			delete(e.quotas, id)
			e.bound.DeleteLabelValues(id)
			continue
		case idle > softIdle:
			continue
		}
		s.advance(now, e.limits)
		p := report{id: id, own: s.total, windows: s.windows, args: []any{s.total, s.known, s.cluster, len(s.windows)}}
		for _, w := range s.windows {
			believed := int64(-1)
			if s.synced {
				believed = min(w.debt, int64(e.opt.HighBurst))
			}
			p.args = append(p.args, time.Duration(w.span).Microseconds(), w.limit, believed)
		}
		list = append(list, p)
	}
	return list
}

// put sends reports to a root and returns the answers.
func (e *Quotas) put(ctx context.Context, r *root, list []report) ([]rootAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opt.timeout)
	defer cancel()
	var keys []string
	args := []any{e.opt.Node, (lostAfter * e.opt.Sync).Microseconds(), softKeep.Microseconds()}
	for _, p := range list {
		keys, args = append(keys, e.softKey(p.id)), append(args, p.args...)
	}
	lines, err := syncScript.Run(ctx, r.client, shards.Run{Keys: keys, Args: args}).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("report %d eventual quotas: %w", len(list), err)
	}
	if len(lines) != len(list) {
		return nil, fmt.Errorf("report %d eventual quotas: %d answers", len(list), len(lines))
	}
	answers := make([]rootAnswer, len(list))
	for i, line := range lines {
		if answers[i], err = parseAnswer(line, len(list[i].windows)); err != nil {
			e.opt.Logger.Debug("a root's answer about an eventual quota is left out", "quota", list[i].id, "error", err)
		}
	}
	return answers, nil
}

// settle applies a root's answers, or records that there were none.
func (e *Quotas) settle(ctx context.Context, r *root, list []report, answers []rootAnswer, sent int64, err error) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil && r.outage.Failed() {
			e.failing++
			e.opt.Logger.Warn("a root of the eventual quotas does not answer", "root", r.index,
				"left", len(e.roots)-e.failing, "error", err)
		}
		return
	}
	if _, over := r.outage.Worked(); over {
		e.failing--
		e.opt.Logger.Info("a root of the eventual quotas answers again", "root", r.index)
	}
	e.limits.rtt = now - sent
	for i, p := range list {
		s := e.quotas[p.id]
		if s == nil || answers[i].nodes == 0 {
			continue
		}
		s.hear(answers[i], p.windows, p.own, sent, now, e.limits)
		e.bound.WithLabelValues(p.id).Set(float64(s.overshoot(e.limits)))
	}
}

// parseAnswer reads a line of the script's answer.
func parseAnswer(line string, windows int) (rootAnswer, error) {
	a := rootAnswer{debts: make([]int64, windows)}
	into := []any{&a.cluster, &a.nodes}
	for i := range a.debts {
		into = append(into, &a.debts[i])
	}
	if _, err := fmt.Sscan(line, into...); err != nil {
		return rootAnswer{}, fmt.Errorf("read %q: %w", line, err)
	}
	if a.cluster < 0 || a.nodes < 1 {
		return rootAnswer{}, errors.New("read an answer: numbers that are too small")
	}
	return a, nil
}
