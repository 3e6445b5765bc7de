//go:build !linux

package main

import (
	"errors"
	"syscall"
)

var errLinux = errors.New("measurements need Linux: they read /proc and suspend processes")

func childAttributes() *syscall.SysProcAttr { return nil }

func (p *Process) Freeze() error       { return errLinux }
func (p *Process) Thaw() error         { return errLinux }
func (p *Process) Cost() (Cost, error) { return Cost{}, errLinux }
