package sinktest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/net/dns/dnsmessage"
)

// Names is a resolver and a dial hook: names have the addresses that the test says, and what is dialled is noted and stopped, so
// that nothing leaves the process. Safe for concurrent use.
type Names struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   map[string]int
	dialled []string

	questions int
}

// ErrStopped ends what is dialled.
var ErrStopped = errors.New("stopped by the test")

// NewNames returns a resolver. The list of a name has the addresses for each lookup in turn; several with a space between.
func NewNames(answers map[string][]string) *Names {
	return &Names{answers: answers, asked: map[string]int{}}
}

// Dialled returns the addresses that were to be dialled.
func (n *Names) Dialled() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dialled)
}

// Asked returns how many questions there were.
func (n *Names) Asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.questions
}

// Dialer returns a dialer that knows no other names, and dials nothing.
func (n *Names) Dialer() net.Dialer {
	return net.Dialer{
		Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go n.serve(server)
			return client, nil
		}},
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.dialled = append(n.dialled, address)
			return ErrStopped
		},
	}
}

// serve answers one question, as DNS over TCP does.
func (n *Names) serve(c net.Conn) {
	defer c.Close()
	b := make([]byte, 2+512)
	got, err := c.Read(b[:2])
	if err != nil || got != 2 {
		return
	}
	size := int(b[0])<<8 | int(b[1])
	for got = 0; got < size; {
		k, err := c.Read(b[2+got : 2+size])
		if err != nil {
			return
		}
		got += k
	}
	var m dnsmessage.Message
	if m.Unpack(b[2:2+size]) != nil || len(m.Questions) != 1 {
		return
	}
	q := m.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	for _, ip := range n.lookup(strings.TrimSuffix(q.Name.String(), "."), q.Type) {
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		if ip.Is4() {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}})
		} else {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		return
	}
	_, _ = c.Write(append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...))
}

func (n *Names) lookup(name string, kind dnsmessage.Type) (list []netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.questions++
	turns := n.answers[strings.ToLower(name)]
	if len(turns) == 0 {
		return nil
	}
	turn := turns[min(n.asked[name+kind.String()], len(turns)-1)]
	n.asked[name+kind.String()]++
	for _, text := range strings.Fields(turn) {
		// An address of IPv4 in IPv6 is one that a server may answer, and is looked at as what it is.
		if ip := netip.MustParseAddr(text); ip.Is4() == (kind == dnsmessage.TypeA) {
			list = append(list, ip)
		}
	}
	return list
}
