package http

import (
	"context"
	"errors"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/guard"
)

// Check fetches an access token if requests need one, and connects to the destination as a delivery would: through its proxy,
// and with TLS if the URL is https. It sends no request. Where addresses come from jobs or from rows, there is only a proxy to
// connect to; see CheckRow and ReachRow.
func (s *Sink) Check(ctx context.Context) error {
	if _, err := s.FetchToken(ctx); err != nil {
		return err
	}
	return s.Now().Check(ctx)
}

// Check connects to the destination, or to the proxy of destinations that are not known.
func (c *Client) Check(ctx context.Context) error {
	if c.reach != fixed {
		return c.ConnectProxy(ctx)
	}
	return c.Connect(ctx, c.target)
}

// Unreached says what of the sink Check cannot reach; "" for nothing.
func (s *Sink) Unreached() string {
	switch s.config.reach() {
	case byJob:
		return "its addresses come from jobs, so none was tried"
	case byTable:
		return "its addresses are those of destinations"
	}
	return ""
}

// CheckRow returns the first problem that would stop all requests to a row of pacer.destinations: a secret that is unavailable, a header
// that cannot be sent, an address that the guard refuses. Nothing is looked up. The error begins with the column.
func (s *Sink) CheckRow(row *delivery.Destination) error {
	_, err := s.row(row)
	return err
}

// ReachRow connects to a row of pacer.destinations as a delivery would, and sends no request.
func (s *Sink) ReachRow(ctx context.Context, row *delivery.Destination) error {
	c, err := s.row(row)
	if err != nil {
		return err
	}
	return c.Connect(ctx, c.target)
}

func (s *Sink) row(row *delivery.Destination) (*Client, error) {
	c, err := s.Now().to(row)
	if err != nil {
		return nil, err
	}
	if detail, refused := guard.Refused(c.Options.Guard.URL(c.target)); refused {
		return nil, errors.New("url: " + detail)
	}
	return c, nil
}
