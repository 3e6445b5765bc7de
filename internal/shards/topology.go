package shards

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The modes of Options.
const (
	ModeSingle   = "single"   // one Redis server
	ModeSentinel = "sentinel" // one Redis with replicas, watched by sentinels
	ModeCluster  = "cluster"  // Redis Cluster
	ModeRing     = "ring"     // independent Redis servers
)

const (
	clusterShards = 16 // default of a cluster: several per master, so that added masters take a share of them
	maxShards     = 1024
	maxDB         = 1 << 15
)

// Options describe the Redis servers.
type Options struct {
	Mode string // single (default), sentinel, cluster or ring
	// Addrs are host:port: of the server, the sentinels, some nodes of the cluster, or the servers of the ring in
	// their order.
	Addrs      []string
	MasterName string // of the sentinels' master
	// Shards is the number of shards among which the keys are divided; 0 for the default: 1, with a cluster 16, with a
	// ring one per address. Counts and timelines do not move when it changes, so it has to stay the same.
	Shards             int
	Username, Password string
	DB                 int // not with a cluster
	// Renew, if set, is called for each new connection, and replaces Username and Password. The sentinels' password is never replaced.
	Renew func() Access
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername, SentinelPassword string
}

// Access is how a new connection is encrypted and authenticated.
type Access struct {
	Username, Password string
	TLS                *tls.Config // nil: none
}

// modes are all of them.
var modes = []string{ModeSingle, ModeCluster, ModeSentinel, ModeRing}

// Problems returns the errors in the options, except missing addresses: one line each, which begins with the option's
// name in the configuration and ends with the remedy.
func (o *Options) Problems() (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	n := len(o.Addrs)
	switch {
	case o.Mode == "" && n > 1:
		add("mode: required with several addresses; use one of cluster, sentinel, ring")
	case o.Mode != "" && !slices.Contains(modes, o.Mode):
		add("mode: there is no %s; use one of %s", shown(o.Mode), strings.Join(modes, ", "))
	case o.Mode == ModeSingle && n > 1:
		add("mode: single takes one address and there are %d; use one of cluster, sentinel, ring", n)
	}
	o.addrProblems(add)
	if (o.Mode == ModeSentinel) != (o.MasterName != "") {
		add("master_name: goes together with redis.mode: sentinel; set both or neither")
	}
	if o.Username != "" && o.Password == "" { // go-redis would log in as the default user
		add("password: required with redis.username; set both or neither")
	}
	switch {
	case o.SentinelUsername != "" && o.SentinelPassword == "":
		add("sentinel_password: required with redis.sentinel_username; set both or neither")
	case o.SentinelPassword != "" && o.Mode != ModeSentinel:
		add("sentinel_password: there are sentinels in mode sentinel only; remove it, or set redis.mode: sentinel")
	}
	switch {
	case o.Shards < 0 || o.Shards > maxShards:
		add("shards: %d is out of range; use a number between 0 and %d", o.Shards, maxShards)
	case o.Mode == ModeRing && o.Shards > 0 && o.Shards < n:
		add("shards: %d leaves some of the %d addresses without any; use at least %d, or 0", o.Shards, n, n)
	}
	switch {
	case o.DB < 0 || o.DB > maxDB:
		add("db: %d is out of range; use a number between 0 and %d", o.DB, maxDB)
	case o.Mode == ModeCluster && o.DB != 0:
		add("db: a cluster has database 0 only; remove it")
	}
	return problems
}

// shown quotes a value for a message, unless it may contain a password.
func shown(value string) string {
	if strings.Contains(value, "@") {
		return "***"
	}
	return fmt.Sprintf("%.60q", value)
}

// addrProblems checks each address. None of a ring may occur twice: it would hold two parts of the counts.
func (o *Options) addrProblems(add func(format string, args ...any)) {
	for i, addr := range o.Addrs {
		_, port, err := net.SplitHostPort(addr)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		switch {
		case strings.Contains(addr, "@"):
			add("addrs: write host:port without credentials; those go into username and password")
		case err != nil:
			add("addrs: %s is not host:port; use one such as 127.0.0.1:6379", shown(addr))
		case o.Mode == ModeRing && slices.Contains(o.Addrs[:i], addr):
			add("addrs: %s is listed twice; name it once", addr)
		}
	}
}

// Connect makes the shards of a topology. It does no I/O: connections are opened at their first use. Errors begin with
// the name of the option in the configuration.
func Connect(o Options) (*Set, error) {
	if problems := o.Problems(); len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "\n"))
	}
	if len(o.Addrs) == 0 {
		return nil, errors.New("addrs: at least one host:port is needed")
	}
	var masters []redis.UniversalClient
	switch o.Mode {
	case ModeSentinel:
		masters = append(masters, redis.NewFailoverClient(o.client(o.Addrs...).Failover()))
	case ModeCluster:
		// A cluster places shards by their hash tags.
		masters = append(masters, redis.NewClusterClient(o.client(o.Addrs...).Cluster()))
	default: // one, or those of a ring
		for _, addr := range o.Addrs {
			masters = append(masters, redis.NewClient(o.client(addr).Simple()))
		}
	}
	for _, c := range masters {
		c.AddHook(explaining{})
	}
	return &Set{o.Count(), masters, o.dial, o.access().TLS != nil}, nil
}

// Count returns the number of shards.
func (o *Options) Count() int {
	switch o.Mode {
	case ModeCluster:
		return cmp.Or(o.Shards, clusterShards)
	case ModeRing:
		return cmp.Or(o.Shards, len(o.Addrs))
	}
	return cmp.Or(o.Shards, 1)
}

// client returns the options of one client.
func (o *Options) client(addrs ...string) *redis.UniversalOptions {
	c := ClientOptions(addrs...)
	c.MasterName, c.DB, c.Dialer = o.MasterName, o.DB, o.dial
	c.SentinelUsername, c.SentinelPassword = o.SentinelUsername, o.SentinelPassword
	c.CredentialsProviderContext = func(context.Context) (username, password string, err error) {
		a := o.access()
		return a.Username, a.Password, nil
	}
	return c
}

// access returns what a new connection is opened with.
func (o *Options) access() Access {
	if o.Renew != nil {
		return o.Renew()
	}
	return Access{Username: o.Username, Password: o.Password}
}

// dial opens a connection as go-redis does, with TLS if that is configured.
func (o *Options) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	plain, encryption := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}, o.access().TLS
	if encryption == nil {
		return plain.DialContext(ctx, network, addr)
	}
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{NetDialer: plain, Config: encryption}).DialContext(ctx, network, addr)
	var header tls.RecordHeaderError
	if errors.As(err, &header) || errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s does not answer in TLS: %w; is redis.tls right, and the port?", addr, err)
	}
	if dialing, ok := errors.AsType[*net.OpError](err); err != nil && (!ok || dialing.Op != "dial") {
		return nil, fmt.Errorf("TLS: %w; look at redis.tls", err)
	}
	return conn, err
}

// New returns one shard for each of independent masters.
func New(masters ...redis.UniversalClient) *Set { return &Set{count: len(masters), masters: masters} }

// Set is the shards of a deployment, distributed over clients in turn: one client for a single Redis or a Redis
// Cluster, several for a ring. A shard is identified by its hash tag. The methods are safe for concurrent use.
type Set struct {
	count     int
	masters   []redis.UniversalClient
	dialer    func(ctx context.Context, network, addr string) (net.Conn, error) // nil: that of go-redis
	encrypted bool
}

// Count returns the number of shards, at least 1. It never changes.
func (s *Set) Count() int { return s.count }

// Master returns the client of the server that has the shard.
func (s *Set) Master(shard int) redis.UniversalClient { return s.masters[shard%len(s.masters)] }

// Masters returns the clients of all masters.
func (s *Set) Masters() []redis.UniversalClient { return s.masters[:min(len(s.masters), s.count)] }

// Up writes a key to every shard, in one round trip, and returns for each master why it does not take it; nil of one that does. A server that
// is full, or has become a replica, answers everything but writes.
func (s *Set) Up(ctx context.Context, prefix string) []error {
	errs := make([]error, len(s.masters))
	var wg sync.WaitGroup
	for i, c := range s.masters {
		wg.Go(func() {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for shard := i; shard < s.count; shard += len(s.masters) {
					p.Set(ctx, Tag(prefix, shard)+"up", 1, time.Minute)
				}
				return nil
			})
			errs[i] = closedAtOnce(err, s.encrypted)
		})
	}
	wg.Wait()
	return errs
}

// Close closes all clients.
func (s *Set) Close() error {
	var errs []error
	for _, c := range s.masters {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// dialTimeout is how long a new connection may take.
const (
	dialTimeout = 250 * time.Millisecond
	tlsTimeout  = time.Second // with the handshake
	keepAlive   = 5 * time.Minute
)

// ClientOptions returns go-redis options of a client that honours deadlines and does not retry by itself: a repeated
// script must carry the same sequence number, which only its caller knows.
func ClientOptions(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addrs, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
	}
}

// Tag returns the beginning of every key of a shard. It is a hash tag, so that one script may use several keys of a
// shard on a Redis Cluster.
func Tag(prefix string, shard int) string { return "{" + prefix + strconv.Itoa(shard) + "}" }

// ClockKey is the end of the key with the clock of a shard and the epoch of its data.
const ClockKey = "clock"

// Of maps a number to one of count shards.
func Of(n uint64, count int) int { return int(n % uint64(count)) }
