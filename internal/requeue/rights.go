package requeue

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/broker"
)

// daemonNeeds returns what a daemon has to be allowed on the topics of the spec.
func (s TopicSpec) daemonNeeds() map[string][]broker.Operation {
	needs := map[string][]broker.Operation{}
	for _, t := range s.owned(0) {
		switch {
		case t.swept():
			needs[t.name] = []broker.Operation{broker.OpRead, broker.OpWrite, broker.OpDelete, broker.OpDescribeConfigs}
		case t.name == ReplaysTopic(s.Prefix): // people's
			needs[t.name] = []broker.Operation{broker.OpDescribeConfigs}
		default:
			needs[t.name] = []broker.Operation{broker.OpWrite, broker.OpDescribeConfigs}
		}
	}
	for _, name := range s.Ingress {
		needs[name] = []broker.Operation{broker.OpRead, broker.OpDescribeConfigs}
	}
	return needs
}

// CheckRights compares what the user of the client may do with what a daemon needs. It returns a line with the remedy for
// each set of operations that is missing; the error is for a cluster that does not answer. Topics that do not exist, and
// clusters that do not tell, have no problems.
func CheckRights(ctx context.Context, client *broker.Client, spec TopicSpec, group string) (problems []string, err error) {
	missing, err := client.LackingOnTopics(ctx, spec.withDefaults().daemonNeeds())
	if err != nil {
		return nil, err
	}
	problems = describeMissing(missing)
	without, err := client.LackingOnGroup(ctx, group, broker.OpRead)
	if err == nil && len(without) > 0 {
		problems = append(problems, lackingLine(listed(without), "group "+group))
	}
	return problems, err
}

// describeMissing returns one line for all topics that lack the same operations.
func describeMissing(missing map[string][]broker.Operation) (lines []string) {
	topics := map[string][]string{} // by what is missing
	for _, topic := range slices.Sorted(maps.Keys(missing)) {
		what := listed(missing[topic])
		topics[what] = append(topics[what], topic)
	}
	for _, what := range slices.Sorted(maps.Keys(topics)) {
		lines = append(lines, lackingLine(what, strings.Join(topics[what], ", ")))
	}
	return lines
}

func listed(operations []broker.Operation) string {
	names := make([]string, len(operations))
	for i, operation := range operations {
		names[i] = operation.String()
	}
	return strings.Join(names, ", ")
}

func lackingLine(what, on string) string {
	return "the user of kafka.sasl lacks " + what + " on " + on + ": add these ACLs"
}
