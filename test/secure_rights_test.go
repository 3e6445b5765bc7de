package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
)

// documented are the rights that docs/operations/deploy.md says to grant. The tests grant these and no others, so that the
// document is complete.
type documented struct {
	kafka map[string][]kafka.ACLEntry // by who needs them; without a principal
	redis []string                    // arguments of ACL SETUSER after the user's name, without the password
	roles string                      // SQL that makes the roles and the schema
	grant string                      // SQL that its owner runs after the migration
}

// The users with rights in Kafka in the document.
const (
	forDaemons = "a daemon"
	forMigrate = "`pacer migrate up`"
	forPeople  = "people"
)

func readDocumented(t *testing.T) documented {
	t.Helper()
	text := readFile(t, "../docs/operations/deploy.md")
	_, services, _ := strings.Cut(text, "## What the services must offer")
	onKafka, services, _ := strings.Cut(services, "### Redis")
	onRedis, onPostgres, _ := strings.Cut(services, "### PostgreSQL")
	d := documented{kafka: map[string][]kafka.ACLEntry{}}
	_, acls, _ := strings.Cut(onKafka, "With ACLs:")
	for line := range strings.Lines(acls) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.Contains(line, "---") || strings.Contains(line, "resource") {
			continue
		}
		who := strings.TrimSpace(cells[0])
		d.kafka[who] = append(d.kafka[who], entriesOf(t, strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]))...)
	}
	_, set, _ := strings.Cut(onRedis, "ACL SETUSER pacer on >PASSWORD ")
	set, _, _ = strings.Cut(set, "\n\n")
	d.redis = strings.Fields(set)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(onPostgres, -1)
	if len(d.kafka) != 3 || !slices.Contains(d.redis, "+evalsha") || len(blocks) != 2 {
		t.Fatalf("docs/operations/deploy.md is not read: %d users of Kafka, Redis %v, %d blocks of SQL", len(d.kafka), d.redis, len(blocks))
	}
	d.roles, d.grant = blocks[0][1], blocks[1][1]
	return d
}

// entriesOf are the entries of one row of the document's table.
func entriesOf(t *testing.T, resource, operations string) (entries []kafka.ACLEntry) {
	t.Helper()
	entry := kafka.ACLEntry{PermissionType: kafka.ACLPermissionTypeAllow, Host: "*", ResourcePatternType: kafka.PatternTypeLiteral}
	switch resource {
	case "ingress topics":
		entry.ResourceType, entry.ResourceName = kafka.ResourceTypeTopic, secureIngress
	case "topics that begin with `pacer.`":
		entry.ResourceType, entry.ResourceName, entry.ResourcePatternType = kafka.ResourceTypeTopic, "pacer.", kafka.PatternTypePrefixed
	case "group `pacer`":
		entry.ResourceType, entry.ResourceName = kafka.ResourceTypeGroup, "pacer"
	default:
		t.Fatalf("docs/operations/deploy.md: rights on %s", resource)
	}
	for operation := range strings.SplitSeq(operations, ", ") {
		if err := entry.Operation.UnmarshalText([]byte(operation)); err != nil {
			t.Fatalf("docs/operations/deploy.md: %v", err)
		}
		entries = append(entries, entry)
	}
	return entries
}

// without are the entries but for an operation on resources of a type whose name has the prefix.
func without(entries []kafka.ACLEntry, resource kafka.ResourceType, prefix string, operation kafka.ACLOperationType) []kafka.ACLEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e kafka.ACLEntry) bool {
		return e.ResourceType == resource && strings.HasPrefix(e.ResourceName, prefix) && e.Operation == operation
	})
}
