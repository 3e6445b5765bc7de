package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kmsg"
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

// login authenticates the user of the moment, at the begin of a connection and again before its session ends:
// https://cwiki.apache.org/confluence/display/KAFKA/KIP-368.
func (c *brokerConn) login(ctx context.Context) error {
	mechanism, err := c.dialer.security().SASL.mechanism()
	if mechanism == nil || err != nil {
		return err
	}
	handshake, agreed := kmsg.NewPtrSASLHandshakeRequest(), kmsg.NewPtrSASLHandshakeResponse()
	handshake.Version, handshake.Mechanism = 1, mechanism.Name()
	if err = c.exchange(handshake, agreed); err == nil {
		err = codeError(agreed.ErrorCode)
	}
	if err != nil {
		return err
	}
	begun := time.Now()
	request, answer := kmsg.NewPtrSASLAuthenticateRequest(), kmsg.NewPtrSASLAuthenticateResponse()
	request.Version = 1 // the first that says how long a session lasts
	session, said, err := mechanism.Start(ctx)
	for done := false; err == nil && !done; {
		request.SASLAuthBytes = said
		if err = c.exchange(request, answer); errors.Is(err, io.EOF) { // so do some brokers refuse a login
			err = kafka.SASLAuthenticationFailed
		}
		if err == nil {
			err = codeError(answer.ErrorCode)
		}
		if err == nil {
			done, said, err = session.Next(ctx, answer.SASLAuthBytes)
		}
	}
	if c.renew = (time.Time{}); err == nil && answer.SessionLifetimeMillis > 0 {
		// At a random time, so that the connections of a daemon, and of several, do not log in all at once.
		c.renew = begun.Add(time.Duration(answer.SessionLifetimeMillis) * time.Microsecond * time.Duration(800+rand.IntN(150)))
	}
	return err
}
