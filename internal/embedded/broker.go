package embedded

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Topic is a topic to be created in a Broker.
type Topic struct {
	Name       string
	Partitions int
}

// BrokerOptions describe a Broker.
type BrokerOptions struct {
	// Topics exist from the start.
	Topics []Topic
	// MaxMessageBytes bounds a produced batch; 0 leaves the broker's default of about 1 MiB.
	MaxMessageBytes int
}

func (o BrokerOptions) validate() error {
	seen := make(map[string]bool, len(o.Topics))
	for _, t := range o.Topics {
		switch {
		case t.Name == "":
			return errors.New("a topic has no name")
		case t.Partitions < 1:
			return fmt.Errorf("topic %s needs at least one partition", t.Name)
		case seen[t.Name]:
			return fmt.Errorf("topic %s is listed twice", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// Broker is a Kafka broker inside this process, with the topics of one demo. It speaks the Kafka protocol on a
// loopback port, so whatever talks to it is the very code that talks to a real cluster. It keeps everything in
// memory and forgets it in Close.
//
// The zero value is not usable; make one with NewBroker, then Start it. Methods are safe for concurrent use
// after Start has returned.
type Broker struct {
	options BrokerOptions
	cluster *kfake.Cluster
}

// NewBroker describes a broker; Start brings it up.
func NewBroker(options BrokerOptions) *Broker { return &Broker{options: options} }

// Start listens and creates the topics. The caller closes the broker even if creating a topic failed.
func (b *Broker) Start() error {
	if err := b.options.validate(); err != nil {
		return fmt.Errorf("start the in-process broker: %w", err)
	}
	opts := []kfake.Opt{kfake.NumBrokers(1)}
	if n := b.options.MaxMessageBytes; n > 0 {
		opts = append(opts, kfake.BrokerConfigs(map[string]string{"message.max.bytes": strconv.Itoa(n)}))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return fmt.Errorf("start the in-process broker: %w", err)
	}
	b.cluster = cluster
	for _, t := range b.options.Topics {
		if err := cluster.CreateTopic(t.Name, int32(t.Partitions), map[string]string{"retention.ms": "-1"}); err != nil {
			return fmt.Errorf("create topic %s in the in-process broker: %w", t.Name, err)
		}
	}
	return nil
}

// Addrs are the addresses to give to a Kafka client.
func (b *Broker) Addrs() []string { return slices.Clone(b.cluster.ListenAddrs()) }

// Close ends the broker and every connection to it. Closing one that never started does nothing.
func (b *Broker) Close() {
	if b.cluster != nil {
		b.cluster.Close()
	}
}
