package test

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// own tells pacer's own topics of the test whose names hold part.
func (s *stack) own(part string) func(topic string) bool {
	return func(topic string) bool {
		name, own := strings.CutPrefix(topic, s.prefix)
		return own && strings.Contains(name, part)
	}
}

// each calls f for every record that is in pacer's own topics of the test whose names hold part.
func (s *stack) each(part string, f func(topic string, r delivery.Record)) {
	s.t.Helper()
	ctx := s.soon()
	for topic := range s.topics(ctx) {
		if s.own(part)(topic) {
			s.eachIn(topic, func(r delivery.Record) { f(topic, r) })
		}
	}
}

// eachIn calls f for every record in a topic.
func (s *stack) eachIn(topic string, f func(r delivery.Record)) {
	s.t.Helper()
	ctx := s.soon()
	partitions, err := s.cluster.PartitionsOf(ctx, topic)
	noError(s.t, err)
	for _, p := range partitions {
		for r, err := range s.cluster.Scan(ctx, p, 0) {
			noError(s.t, err)
			f(r)
		}
	}
}

// bury removes the members of killed daemons from the group. Their sessions would say so ten seconds later, as they do in
// TestKilledDaemonLosesNothing.
func (s *stack) bury() {
	s.t.Helper()
	ctx := s.soon()
	s.await(20*time.Second, "the group to be without members", func() bool {
		answer, err := s.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{s.ingress}})
		if err != nil || len(answer.Groups) != 1 || answer.Groups[0].Error != nil {
			return false
		}
		leave := &kafka.LeaveGroupRequest{GroupID: s.ingress}
		for _, m := range answer.Groups[0].Members {
			leave.Members = append(leave.Members, kafka.LeaveGroupRequestMember{ID: m.MemberID})
		}
		if len(leave.Members) > 0 {
			_, _ = s.client.LeaveGroup(ctx, leave) // the next look tells
		}
		return len(leave.Members) == 0
	})
}

// noteHops keeps how many jobs the daemon wrote to a lane for a second time: their records are removed once they are
// delivered. A daemon that was killed says nothing.
func (d *daemon) noteHops() {
	metrics := d.read("/metrics")
	all, _ := sumOf(metrics, "pacer_requeue_hops_count")
	once, _ := sumOf(metrics, `pacer_requeue_hops_bucket{le="1"}`)
	d.s.again += int(all - once)
}

// maxHops is the largest pacer-hops of a record in the lanes, without hops to another lane. It is 2 if such a record was already deleted.
func (s *stack) maxHops() (most int) {
	s.t.Helper()
	if s.again > 0 {
		most = 2
	}
	s.each("lanes", func(_ string, r delivery.Record) {
		n, _ := strconv.Atoi(r.Header("pacer-hops"))
		most = max(most, n)
	})
	return most
}

// dead are the reasons of the dead letters, by job id; undecodable ones, whose id is their place, by value.
func (s *stack) dead() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	s.each("dead", func(_ string, r delivery.Record) {
		id := r.Header("pacer-job-id")
		if r.Header("pacer-reason") == "undecodable" {
			id = string(bytes.TrimSpace(r.Value))
		}
		found[id] = r.Header("pacer-reason")
	})
	return found
}

func sortByTime(list []arrival) {
	slices.SortFunc(list, func(a, b arrival) int { return int(a.at - b.at) })
}
