package notation

import "regexp"

// maxTopic is how many characters the name of a topic may have.
const maxTopic = 249

var topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// IsTopic reports whether Kafka accepts a name for a topic: letters, digits and ._-, at most 249 of them, but not . and .. alone.
func IsTopic(name string) bool {
	return len(name) <= maxTopic && name != "." && name != ".." && topicPattern.MatchString(name)
}
