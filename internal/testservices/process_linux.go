package testservices

import "syscall"

// dieWithParent ends a child when the test binary dies without cleaning up, for example because of its own -timeout.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
