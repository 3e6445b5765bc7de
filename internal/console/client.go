package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	askReadyWithin = 3 * time.Second
	maxReadyAnswer = 1 << 10
)

// AskReady requests /readyz of the daemon that listens at the address. If the daemon is not ready, its answer is the
// error.
func AskReady(ctx context.Context, listen string) error {
	ctx, cancel := context.WithTimeout(ctx, askReadyWithin)
	defer cancel()
	address := Dialable(listen)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "http", Host: address, Path: "/readyz"}).String(), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	// No proxy from the environment: it is meant for destinations, not for this machine.
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", address, err)
	}
	defer func() { _ = answer.Body.Close() }() // read as far as needed
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReadyAnswer))
	if answer.StatusCode == http.StatusOK && err == nil {
		return nil
	}
	why := strings.Join(strings.Fields(string(body)), " ")
	if answer.StatusCode == http.StatusServiceUnavailable && why != "" {
		return errors.New(why)
	}
	return fmt.Errorf("%s answers %s, which is not what pacer run says", address, answer.Status)
}

// Dialable returns the address at which this machine reaches a listener on listen.
func Dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen // rejected when the configuration was loaded
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip != nil && ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip != nil && ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
