package app

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

// CheckReady is `pacer check --ready`: one question to the daemon of this configuration on this machine, and none to
// the services behind it. It is what a container's health check runs, where there is no other program to ask.
func CheckReady(ctx context.Context, in Invocation) error {
	cfg, _, err := in.load()
	if err != nil {
		return err
	}
	if cfg.HTTP.Listen == "" {
		return usagef("http.listen: off, so there is nothing to ask; set an address, or leave --ready out")
	}
	c := &checks{p: &printer{w: in.Stdout}}
	c.say("daemon", askReady(ctx, cfg.HTTP.Listen))
	if c.p.err == nil && c.failed {
		return ErrNotOK
	}
	return c.p.err
}

// askReady asks /readyz of the daemon that listens there. Its answer, when it is not ready, is the error.
func askReady(ctx context.Context, listen string) error {
	ctx, cancel := context.WithTimeout(ctx, askReadyWithin)
	defer cancel()
	address := dialable(listen)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "http", Host: address, Path: "/readyz"}).String(), nil)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	// A transport of its own: a proxy of the environment is for destinations, not for this machine.
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("http.listen: no answer from %s: %w", address, err)
	}
	defer func() { _ = answer.Body.Close() }() // read as far as it is needed
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReadyAnswer))
	if answer.StatusCode == http.StatusOK && err == nil {
		return nil
	}
	why := strings.Join(strings.Fields(string(body)), " ")
	if answer.StatusCode == http.StatusServiceUnavailable && why != "" {
		return errors.New(why)
	}
	return fmt.Errorf("http.listen: %s answers %s, which is not what pacer run says", address, answer.Status)
}

// dialable is where something that listens on the address is reached from this machine.
func dialable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen // refused when it was loaded
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip != nil && ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip != nil && ip.Equal(net.IPv6unspecified):
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
