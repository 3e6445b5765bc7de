package broker

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// SASL is how a client authenticates. Mechanism is plain, scram-sha-256, scram-sha-512 or, for none, "".
type SASL struct {
	Mechanism, Username, Password string
}

// mechanism returns the kafka-go form; nil for none.
func (s SASL) mechanism() (sasl.Mechanism, error) {
	algorithm := map[string]scram.Algorithm{"scram-sha-256": scram.SHA256, "scram-sha-512": scram.SHA512}
	switch s.Mechanism {
	case "":
		return nil, nil
	case "plain":
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	default:
		m, err := scram.Mechanism(algorithm[s.Mechanism], s.Username, s.Password)
		if err != nil {
			return nil, fmt.Errorf("username or password: %w", err)
		}
		return m, nil
	}
}

// credentials is a mechanism that logs in with what is valid when the connection is made.
type credentials struct {
	sasl.Mechanism
	security func() Security
}

// login returns the mechanism of the connections; nil for none.
func login(security func() Security) (sasl.Mechanism, error) {
	m, err := security().SASL.mechanism()
	if m == nil || err != nil {
		return nil, err
	}
	return credentials{m, security}, nil
}

// Start implements sasl.Mechanism.
func (c credentials) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	m, err := c.security().SASL.mechanism()
	if err != nil {
		return nil, nil, err
	}
	return m.Start(ctx)
}
