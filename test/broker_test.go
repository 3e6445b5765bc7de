package test

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
)

// each calls f for every record that is in the topics whose names begin with the test's prefix and end in part.
func (s *stack) each(part string, f func(topic string, r delivery.Record)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	meta, err := s.client.Metadata(ctx, &kafka.MetadataRequest{})
	noError(s.t, err)
	for _, topic := range meta.Topics {
		if !strings.HasPrefix(topic.Name, s.prefix) || !strings.Contains(topic.Name, part) {
			continue
		}
		for _, p := range topic.Partitions {
			for r, err := range s.cluster.Scan(ctx, broker.Partition{Topic: topic.Name, ID: p.ID}, 0) {
				noError(s.t, err)
				f(topic.Name, r)
			}
		}
	}
}

// bury removes the members of killed daemons from the group. Their sessions would say so ten seconds later, as they do in
// TestKilledDaemonLosesNothing.
func (s *stack) bury() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
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
	d.s.again += int(d.samplesOf("pacer_requeue_hops_count") - d.samplesOf(`pacer_requeue_hops_bucket{le="1"}`))
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
