package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// start runs a shell script as if it were a daemon.
func start(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(exec.Command("/bin/sh", "-c", script), filepath.Join(t.TempDir(), "log"))
	noError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func TestProcessStopsGracefully(t *testing.T) {
	p := start(t, `trap 'exit 0' INT; echo up; while :; do sleep 0.01; done`)
	up := func(context.Context) error {
		if !strings.Contains(p.said(), "up") {
			return errors.New("not up")
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	noError(t, p.AwaitReady(ctx, up))
	if cost, err := p.Cost(); err != nil || cost.RSS == 0 {
		t.Errorf("cost %+v, %v", cost, err)
	}
	if err := p.Alive(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(p.Freeze(), p.Thaw(), p.Stop(ctx)); err != nil {
		t.Error(err)
	}
	if err := p.Stop(ctx); err != nil {
		t.Errorf("a second stop: %v", err)
	}
}

func TestProcessThatFailsSaysWhy(t *testing.T) {
	p := start(t, `echo "no such broker"; exit 3`)
	err := p.AwaitReady(t.Context(), func(context.Context) error { return errors.New("not ready") })
	if err == nil || !strings.Contains(err.Error(), "no such broker") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
	if err := p.Alive(); err == nil {
		t.Error("it is alive")
	}
}

func TestProcessThatDoesNotStopIsKilled(t *testing.T) {
	p := start(t, `trap '' INT; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err == nil {
		t.Error("it stopped")
	}
}
