//go:build !linux

package testservices

import "syscall"

// dieWithParent has no counterpart here: a test binary that dies without cleaning up leaves its children.
func dieWithParent() *syscall.SysProcAttr { return nil }
