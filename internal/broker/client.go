package broker

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	clientID    = "pacer"
	dialTimeout = 5 * time.Second
	// metadataTTL is how long topic metadata is cached: new topics are noticed within it.
	metadataTTL = 2 * time.Second

	callTimeout  = 10 * time.Second // of one read request
	adminTimeout = 20 * time.Second // of one request that creates or changes topics
)

// Partition names a partition of a topic.
type Partition struct {
	Topic string
	ID    int
}

func (p Partition) String() string { return p.Topic + "/" + strconv.Itoa(p.ID) }

// Security is how connections are encrypted and authenticated.
type Security struct {
	TLS  *tls.Config // nil: not encrypted
	SASL SASL
}

// Options of a Client. Brokers is required.
type Options struct {
	Brokers []string
	// Topics are those whose layout is cached; nil: all of the cluster. A client that creates topics has to name them.
	Topics []string
	// Security, if set, is called for each new connection. Whether there is TLS, and which mechanism of SASL, never
	// changes.
	Security    func() Security
	MetadataTTL time.Duration // how long the layout of topics is cached; 2 s
	DialTimeout time.Duration // of a new connection; 5 s
	// MaxRecordBytes is how large a record may be that is read; 16 MiB.
	MaxRecordBytes int64
	// Cluster, if set, returns the id of the only cluster that is used; "": any. Brokers of another one are passed over, and Logger gets
	// an error of each.
	Cluster func() string
	Logger  *slog.Logger
	// Wrap, if set, wraps the connections of the client. Tests simulate network failures with it.
	Wrap func(kafka.RoundTripper) kafka.RoundTripper
}

// Client reaches a cluster. Every call has its own deadline besides that of its context. Safe for concurrent use.
type Client struct {
	options     Options
	kafka       *kafka.Client
	connections *pools
	throttle    *throttle
	slow        sync.Map // Partition whose last fetch got no answer in time -> how long the next one may take, time.Duration

	coordinators sync.Map // group -> id of its broker, int

	mu     sync.Mutex
	layout map[string][]int // topic -> partition -> leader
	readAt time.Time
}

// New makes a client. It opens no connection. An error concerns SASL.
func New(o Options) (*Client, error) {
	if o.Security == nil {
		o.Security = func() Security { return Security{} }
	}
	if _, err := o.Security().SASL.mechanism(); err != nil {
		return nil, err
	}
	if o.Cluster == nil {
		o.Cluster = func() string { return "" }
	}
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	d := &dialer{security: o.Security, cluster: o.Cluster, log: log}
	var connections pools
	for i := range connections {
		connections[i] = &kafka.Transport{
			Dial: d.dial, ClientID: clientID, DialTimeout: cmp.Or(o.DialTimeout, dialTimeout), MetadataTTL: cmp.Or(o.MetadataTTL, metadataTTL),
			MetadataTopics: o.Topics,
		}
	}
	var transport kafka.RoundTripper = &connections
	if o.Wrap != nil {
		transport = o.Wrap(transport)
	}
	o.MaxRecordBytes = cmp.Or(o.MaxRecordBytes, DefaultMaxRecordBytes)
	t := &throttle{log: log, until: map[gate]time.Time{}, urgent: map[gate]int{}}
	return &Client{
		options: o,
		// No Timeout: kafka-go would halve it for the broker's waits.
		kafka: &kafka.Client{Addr: kafka.TCP(o.Brokers...), Transport: network{transport, t}}, throttle: t,
		connections: &connections, layout: make(map[string][]int),
	}, nil
}

// For returns another client of the cluster, which reaches these topics instead. The caller closes it.
func (c *Client) For(topics ...string) (*Client, error) {
	o := c.options
	o.Topics = topics
	return New(o)
}

// Close closes idle connections.
func (c *Client) Close() {
	for _, pool := range c.connections {
		pool.CloseIdleConnections()
	}
}

// byTopic groups partitions by topic, as requests need them.
func byTopic[S, T any](list []S, of func(S) (topic string, part T)) map[string][]T {
	topics := make(map[string][]T)
	for _, item := range list {
		topic, part := of(item)
		topics[topic] = append(topics[topic], part)
	}
	return topics
}
