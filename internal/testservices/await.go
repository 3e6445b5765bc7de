package testservices

import (
	"errors"
	"fmt"
	"time"
)

// patience bounds every wait for a service: its start, a topic's leaders, a failover.
const patience = 60 * time.Second

// hopeless is an error that waiting does not cure.
type hopeless struct{ error }

// await calls check repeatedly until it returns nil. After patience it returns check's error.
func await(check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || errors.As(err, new(hopeless)) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", patience, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
