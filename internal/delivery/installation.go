package delivery

import "fmt"

// Installation is what daemons that work together have in common, as their stored positions show it.
type Installation struct {
	Group string // consumer group
	Lanes string // the topic of their lanes
}

// Other says in one line what is wrong if another installation uses the same database; "" if this one has none but itself.
func (i Installation) Other(seen []Installation) string {
	for _, o := range seen {
		switch {
		case o == i:
		case o.Lanes == i.Lanes:
			return fmt.Sprintf("daemons of the consumer group %q read the same topics, %s and others, so each job that waits there is sent by both: "+
				"set kafka.group to the same, or kafka.topic_prefix and the database to others", o.Group, o.Lanes)
		default:
			return fmt.Sprintf("daemons of another installation used this database in the last minute (consumer group %q, topic %s), and "+
				"each takes the lanes and counts of the other for its own: give it a database and a redis.key_prefix of its own", o.Group, o.Lanes)
		}
	}
	return ""
}
