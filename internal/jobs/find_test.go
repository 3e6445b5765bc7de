package jobs

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/shards"
)

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try is for calls that give a value, and end the test at an error: found := try(topics.Find(ctx, question))(t).
func try[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return value
	}
}

// rig is topics on a broker and a ledger in memory.
type rig struct {
	Topics
	brokers []string
}

func newRig(t *testing.T, ingress ...string) rig {
	t.Helper()
	spec := requeue.TopicSpec{Prefix: "pacer.", Ingress: ingress, Lanes: 1}
	cluster := try(kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, append([]string{"jobs"}, spec.Names()[len(ingress):]...)...)))(t)
	t.Cleanup(cluster.Close)
	client := try(broker.New(broker.Options{Brokers: cluster.ListenAddrs()}))(t)
	t.Cleanup(client.Close)
	store := miniredis.RunT(t)
	redisClient := redis.NewClient(&redis.Options{Addr: store.Addr()})
	t.Cleanup(func() { _ = redisClient.Close() })
	return rig{Topics{Client: client, Group: "g", TopicSpec: spec,
		Marks: &dedupe.Desk{Shards: shards.New(redisClient), KeyPrefix: "t:", Keep: time.Hour}}, cluster.ListenAddrs()}
}

// publish publishes records.
func (r rig) publish(t *testing.T, topic string, records ...delivery.Record) {
	t.Helper()
	try(broker.NewProducer(broker.ProducerOptions{Client: r.Client}).Publish(t.Context(), topic, broker.All(records), nil))(t)
}

// commit commits an offset of the only partition of a topic.
func (r rig) commit(t *testing.T, topic string, offset int64, metadata string) {
	t.Helper()
	group := kafka.Client{Addr: kafka.TCP(r.brokers...)}
	try(group.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: r.Group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: offset, Metadata: metadata}}}}))(t)
}

// recordOf is a record with a value and these headers.
func recordOf(value string, pairs ...string) delivery.Record {
	r := delivery.Record{Value: []byte(value)}
	for i := 0; i < len(pairs); i += 2 {
		r.Headers = append(r.Headers, delivery.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return r
}

// unrecorded cancels without a record of it.
func unrecorded(ctx context.Context, do func(context.Context) (map[string][]string, error)) error {
	_, err := do(ctx)
	return err
}

// One topic of ingress that does not exist (yet) does not hide the jobs that wait in the others: the daemons read these.
func TestAMissingTopicHidesNoOther(t *testing.T) {
	topics := newRig(t, "jobs", "missing")
	topics.publish(t, "jobs", recordOf("{}", delivery.HeaderCampaign, "spring", delivery.HeaderJobID, "u-1"))
	found, err := topics.Find(t.Context(), Question{ID: "u-1"})
	if err != nil || len(found.Waiting) != 1 {
		t.Errorf("found %+v, %v", found, err)
	}
	out, err := topics.Cancel(t.Context(), Cancellation{IDs: []string{"u-1"}}, unrecorded)
	if err != nil || len(out.Jobs) != 1 || out.Jobs[0].State != "cancelled" {
		t.Errorf("cancelled %+v, %v", out, err)
	}
}

// A job that was written straight into a lane as an envelope, which operations/publish.md allows, and is left behind there, is found.
func TestAnEnvelopeInALaneIsFound(t *testing.T) {
	topics := newRig(t, "jobs")
	topics.publish(t, "pacer.lanes", recordOf(`{"campaign":"spring","id":"envelope","payload":{}}`),
		recordOf("{}", delivery.HeaderCampaign, "spring", delivery.HeaderJobID, "headers"))
	lane, hash := offset.NewLane(0), delivery.CampaignHash("spring") // a lane whose campaign is paused: both were refused
	for o := range int64(2) {
		lane.Add(hash, offset.Record{Offset: o, Size: 1, Weight: 1})
	}
	lane.GiveBack(1)
	lane.GiveBack(0)
	p := lane.Position()
	topics.commit(t, "pacer.lanes", p.Offset, p.Metadata)
	for _, id := range []string{"headers", "envelope"} {
		found, err := topics.Find(t.Context(), Question{ID: id})
		if err != nil || len(found.Waiting) != 1 {
			t.Errorf("%s: found %+v, %v", id, found, err)
		}
		out, err := topics.Cancel(t.Context(), Cancellation{IDs: []string{id}}, unrecorded)
		if err != nil || out.Jobs[0].State != "cancelled" {
			t.Errorf("%s: cancelled %+v, %v", id, out, err)
		}
	}
}

// A record of an aborted transaction, or of one that is open, is no job that waits: no daemon sends it.
func TestAnAbortedJobDoesNotWait(t *testing.T) {
	topics := newRig(t, "jobs")
	p := try(kgo.NewClient(kgo.SeedBrokers(topics.brokers...), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("jobs")))(t)
	defer p.Close()
	must(t, p.BeginTransaction())
	rec := &kgo.Record{Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "pacer-campaign", Value: []byte("spring")}, {Key: "pacer-job-id", Value: []byte("u-1")}}}
	must(t, p.ProduceSync(t.Context(), rec).FirstErr())
	for _, state := range []string{"open", "aborted"} {
		if found, err := topics.Find(t.Context(), Question{ID: "u-1"}); err != nil || len(found.Waiting) != 0 || len(found.Unread) != 0 {
			t.Errorf("%s: %+v, %v", state, found, err)
		}
		must(t, p.EndTransaction(t.Context(), kgo.TryAbort))
	}
}

// TestAJobThatIsNamedByItsPlaceIsCancelled: its producer gave no id. What is reported as cancelled is cancelled in the ledger.
func TestAJobThatIsNamedByItsPlaceIsCancelled(t *testing.T) {
	topics := newRig(t, "jobs")
	rec := recordOf("{}", delivery.HeaderCampaign, "spring")
	topics.publish(t, "jobs", rec)
	for name, campaign := range map[string]string{"with its campaign": "spring", "searched for": ""} {
		out, err := topics.Cancel(t.Context(), Cancellation{IDs: []string{"jobs/0/0"}, Campaign: campaign}, unrecorded)
		if err != nil || len(out.Jobs) != 1 {
			t.Fatalf("%+v, %v", out, err)
		}
		identities, _, err := topics.Client.Identify(t.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		rec.Topic, rec.TopicID = "jobs", identities["jobs"]
		j := record.Decode(&rec, delivery.FromIngress, record.Limits{MaxWeight: 1}, time.Now())
		marks := try(topics.Marks.Look(t.Context(), []dedupe.Job{{Campaign: j.Campaign, ID: j.ID, Scope: j.Scope()}}))(t) // as the ledger does
		if out.Jobs[0].State != "cancelled" || marks[0] != dedupe.Cancelled {
			t.Errorf("%s: %s is reported as %s, and marked as %q", name, j.ID, out.Jobs[0].State, marks[0])
		}
		_, _ = topics.Marks.Shards.Master(0).FlushAll(t.Context()).Result()
	}
}

// TestAnEventWithASourceIsCancelled: its id is unique with its source only, which its record has. A campaign spares the search for it, and that is said.
func TestAnEventWithASourceIsCancelled(t *testing.T) {
	topics := newRig(t, "jobs")
	topics.publish(t, "jobs", recordOf("{}", delivery.HeaderCampaign, "spring", delivery.HeaderCloudEvent, "e-1", delivery.HeaderEventSource, "/shop"))
	for _, c := range []struct {
		campaign string
		says     []string
		mark     dedupe.Mark
	}{{"spring", []string{unsearched}, dedupe.Free}, {"", []string{}, dedupe.Cancelled}} {
		out, err := topics.Cancel(t.Context(), Cancellation{IDs: []string{"e-1"}, Campaign: c.campaign}, unrecorded)
		if err != nil || !slices.Equal(out.Unread, c.says) {
			t.Errorf("with the campaign %q: %+v, %v", c.campaign, out, err)
		}
		marks, err := topics.Marks.Look(t.Context(), []dedupe.Job{{Campaign: "spring", ID: "e-1", Scope: "/shop"}})
		if err != nil || marks[0] != c.mark {
			t.Errorf("with the campaign %q its mark is %q, %v", c.campaign, marks, err)
		}
	}
}
