package delivery

import "fmt"

// Installation is what a database is set up for by pacer migrate up, and by a configuration. Unknown values are "" and 0.
type Installation struct {
	Cluster string // id of the only Kafka cluster that is used
	Group   string // consumer group
	Prefix  string // of pacer's own topics
	Shards  int    // of the quota store, 1 to 1024, among which new quotas are spread
}

// Other says in one line what is wrong if another installation uses the database; "" if only the cluster differs, or nothing does.
func (i Installation) Other(mine Installation) string {
	switch {
	case i.Group == "":
		return ""
	case i.Group == mine.Group && i.Prefix == mine.Prefix && (i.Shards == mine.Shards || i.Shards == 0 || mine.Shards == 0):
		return ""
	case i.Group == mine.Group && i.Prefix == mine.Prefix:
		return fmt.Sprintf("pacer migrate up was run for %d shards of Redis, not for %d. Daemons with other shards count each quota anew, so that its limit is "+
			"spent twice: set redis.shards to %d, or, if it has changed for all daemons, run pacer migrate up", i.Shards, mine.Shards, i.Shards)
	}
	return fmt.Sprintf("pacer migrate up was run for the consumer group %q and topics %s*, not for %q and %s*. Installations that share a database take the "+
		"lanes and counts of each other for their own, and groups that share topics send each job twice: give each a database and a redis.key_prefix of "+
		"its own, or, if these settings have changed, run pacer migrate up", i.Group, i.Prefix, mine.Group, mine.Prefix)
}
