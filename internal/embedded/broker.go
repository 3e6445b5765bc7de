package embedded

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
)

// maxMessageBytes bounds a produced batch.
const maxMessageBytes = "2097152"

// StartBroker starts a Kafka broker whose topics have that many partitions. It speaks the Kafka protocol on a loopback port, so its
// clients are the same as for a real cluster. All data is in memory and lost when the caller closes it.
func StartBroker(topics map[string]int) (*kfake.Cluster, error) {
	configs := kfake.BrokerConfigs(map[string]string{"message.max.bytes": maxMessageBytes})
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), configs)
	if err != nil {
		return nil, fmt.Errorf("start the in-process broker: %w", err)
	}
	for name, partitions := range topics {
		if err := cluster.CreateTopic(name, int32(partitions), map[string]string{"retention.ms": "-1"}); err != nil {
			cluster.Close()
			return nil, fmt.Errorf("create topic %s in the in-process broker: %w", name, err)
		}
	}
	return cluster, nil
}
