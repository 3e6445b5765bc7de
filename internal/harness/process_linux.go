package harness

import "syscall"

// dieWithParent ends a child when the test binary dies without cleaning up, as it does when it runs into its
// own -timeout.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
