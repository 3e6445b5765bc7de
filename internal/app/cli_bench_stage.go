package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/embedded"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/requeue"
)

const (
	benchPartitions = 12 // of the ingress topic: shared evenly by one, two, three, four, six or twelve daemons
	benchLanes      = 16
	benchPath       = "/deliver"
	benchHTTP       = "benchhttp" // names of sinks
	benchDiscard    = "benchdiscard"
	// benchOpenAge is max_open_age of the daemons: no job goes to a lane, which one daemon reads, so that each of
	// several has jobs all the time.
	benchOpenAge   = time.Hour
	benchStopTime  = 25 * time.Second
	benchCleanTime = 30 * time.Second
)

// benchStage is what a measurement has to itself on the configured services: topics, a consumer group, a key prefix, a
// database, receivers, and daemons. It is for one goroutine. Whatever was made is removed by close.
type benchStage struct {
	in         Invocation
	services   *services // of a configuration with the names below
	name       string    // of everything that it makes
	folder     string
	epoch      time.Time
	redis      limits.Shards
	db         *pgx.Conn
	receivers  []*embedded.Receiver // by daemon
	recordings []*bench.Recording
	owners     map[string]benchOwner // by campaign, of the runs that are not reported yet
	daemons    []*bench.Process
	listens    []string
	undo       []func(ctx context.Context) error
}

// openBench makes a stage for up to so many daemons. The error is about a service that could not be used; nothing is
// left behind then.
func (in Invocation) openBench(ctx context.Context, daemons int) (*benchStage, error) {
	cfg, log, err := in.load(NeedKafka, NeedRedis, NeedPostgres)
	if err != nil {
		return nil, err
	}
	id, err := publishID()
	if err != nil {
		return nil, err
	}
	st := &benchStage{in: in, name: "pacer-bench-" + id, epoch: time.Now()}
	server := cfg.Postgres.DSN.Reveal()
	cfg.Kafka.Group, cfg.Kafka.TopicPrefix, cfg.Kafka.Lanes = st.name, st.name+".", benchLanes
	cfg.Kafka.Topics = []string{st.name + ".jobs"}
	cfg.Redis.KeyPrefix = cfg.Kafka.TopicPrefix
	cfg.Postgres.DSN = Secret(withDatabase(server, st.database()))
	st.services = &services{config: cfg, log: log, topics: topicsOf(cfg), dsn: cfg.Postgres.DSN.Reveal()}
	if err := st.services.openKafka(); err != nil {
		return nil, UsageError{err}
	}
	st.undo = append(st.undo, func(context.Context) error { st.services.close(); return nil })
	for _, step := range []func() error{
		st.makeFolder,
		st.openRedis,
		func() error { return st.makeDatabase(ctx, server) },
		func() error { return st.makeTopics(ctx) },
		func() error { return st.openReceivers(ctx, daemons) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, st.close(ctx))
		}
	}
	return st, nil
}

// database is the name of the stage's database.
func (st *benchStage) database() string { return strings.ReplaceAll(st.name, "-", "_") }

// withDatabase is the DSN, a URL or a list of key=value, for another database.
func withDatabase(dsn, name string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return dsn + " dbname=" + name // the last one counts
	}
	u.Path = "/" + name
	return u.String()
}

// close stops what runs and removes what was made, in the reverse order, also when ctx has ended.
func (st *benchStage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanTime)
	defer cancel()
	err := st.stop(ctx)
	for _, undo := range slices.Backward(st.undo) {
		err = errors.Join(err, undo(ctx))
	}
	st.undo = nil
	return err
}

func (st *benchStage) makeFolder() (err error) {
	if st.folder, err = os.MkdirTemp("", st.name); err != nil {
		return fmt.Errorf("make a folder for what is recorded: %w", err)
	}
	st.undo = append(st.undo, func(context.Context) error { return os.RemoveAll(st.folder) })
	return nil
}

func (st *benchStage) makeDatabase(ctx context.Context, server string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("postgres.dsn: %w", err)
	}
	st.undo = append(st.undo, conn.Close)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+st.database()); err != nil {
		return fmt.Errorf("postgres.dsn: its user must be allowed to create databases: %w", err)
	}
	st.undo = append(st.undo, func(ctx context.Context) error {
		if _, err := conn.Exec(ctx, "DROP DATABASE "+st.database()+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("remove database %s: %w", st.database(), err)
		}
		return nil
	})
	migrator, err := catalog.NewMigrator(st.services.dsn)
	if err != nil {
		return err
	}
	if _, err := migrator.Up(ctx); err != nil {
		return err
	}
	if st.db, err = pgx.Connect(ctx, st.services.dsn); err != nil {
		return fmt.Errorf("postgres.dsn: %w", err)
	}
	st.undo = append(st.undo, st.db.Close)
	return nil
}

func (st *benchStage) makeTopics(ctx context.Context) error {
	client, topics := st.services.kafka, st.services.topics
	st.undo = append(st.undo, st.removeTopics)
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topics.Ingress[0], NumPartitions: benchPartitions, ReplicationFactor: max(1, topics.ReplicationFactor),
	}}})
	if err == nil {
		err = answer.Errors[topics.Ingress[0]]
	}
	if err == nil {
		_, err = requeue.EnsureTopics(ctx, client, topics)
	}
	if err != nil {
		return fmt.Errorf("kafka.brokers: make topics: %w", err)
	}
	return st.awaitTopics(ctx)
}

// awaitTopics waits until the new topics have leaders, and until this process's view of the cluster shows them.
func (st *benchStage) awaitTopics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		_, err := requeue.Partitions(ctx, st.services.kafka, st.services.topics.Ingress[0])
		if err == nil {
			_, err = st.requeued(ctx)
		}
		if err == nil || !waitUntil(ctx, time.Now().Add(benchSample)) {
			return err
		}
	}
}

// removeTopics removes the topics and the group. A topic that was never made is no error.
func (st *benchStage) removeTopics(ctx context.Context) error {
	client := st.services.kafka
	removed, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: st.services.topics.Names()})
	if err != nil {
		return fmt.Errorf("remove topics: %w", err)
	}
	var failures []error
	for topic, err := range removed.Errors {
		if err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
			failures = append(failures, fmt.Errorf("remove topic %s: %w", topic, err))
		}
	}
	groups, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{st.name}})
	if err == nil {
		err = groups.Errors[st.name]
	}
	if err != nil && !errors.Is(err, kafka.GroupIdNotFound) {
		failures = append(failures, fmt.Errorf("remove group %s: %w", st.name, err))
	}
	return errors.Join(failures...)
}

// openReceivers starts one receiver per daemon, so that it is known which of them sent a job.
func (st *benchStage) openReceivers(ctx context.Context, n int) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	st.undo = append(st.undo, func(context.Context) error { stop(); return nil })
	for i := range n {
		r := embedded.NewReceiver(embedded.ReceiverOptions{
			Paths: map[string]embedded.Behaviour{benchPath: {}}, MaxRequests: benchMaxJobs, Log: st.services.log,
		})
		if err := r.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(running) }()
		st.undo = append(st.undo, func(context.Context) error { stop(); return <-ended })
		st.receivers = append(st.receivers, r)
		st.recordings = append(st.recordings, bench.NewRecording(st.recordFile(i)))
	}
	return nil
}

func (st *benchStage) recordFile(daemon int) string {
	return filepath.Join(st.folder, fmt.Sprintf("sent-%d", daemon))
}

// create writes campaigns into the catalog. They must be there before the daemons start, which would put jobs of a
// campaign that they do not know yet into a timer.
func (st *benchStage) create(ctx context.Context, campaigns []benchCampaign) error {
	ids, sinks := make([]string, len(campaigns)), make([]string, len(campaigns))
	units, periods := make([]int64, len(campaigns)), make([]int64, len(campaigns))
	for i, c := range campaigns {
		ids[i], sinks[i], units[i], periods[i] = c.id, c.sink, c.rate.N, c.rate.Per
	}
	// A rate in lowest terms is whole units per microseconds; a thousand times both makes a period that is long enough.
	_, err := st.db.Exec(ctx, `INSERT INTO pacer.campaigns (id, sink, send_rate, send_per)
SELECT id, sink, units * 1000, make_interval(secs => period / 1000.0) FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
AS c(id, sink, units, period)`, ids, sinks, units, periods)
	if err != nil {
		return fmt.Errorf("create campaigns: %w", err)
	}
	return nil
}

// launch starts so many daemons and waits until all share the partitions.
func (st *benchStage) launch(ctx context.Context, n int) error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to run daemons: %w", err)
	}
	args := []string{"run"}
	if st.in.ConfigSet {
		args = append(args, "--config", st.in.ConfigPath)
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for i := range n {
		listen, err := freeAddress()
		if err != nil {
			return err
		}
		p, err := bench.Start(bench.ProcessOptions{
			Path: path, Args: args, Env: st.environment(i, listen), Log: filepath.Join(st.folder, fmt.Sprintf("log-%d", i)),
		})
		if err != nil {
			return err
		}
		st.daemons, st.listens = append(st.daemons, p), append(st.listens, listen)
	}
	for i, p := range st.daemons {
		err := p.AwaitReady(ctx, func(ctx context.Context) error { return askReady(ctx, st.listens[i]) })
		if err != nil {
			return err
		}
	}
	return st.awaitGroup(ctx)
}

// environment is that of one daemon: this process's, except for what belongs to the stage.
func (st *benchStage) environment(daemon int, listen string) []string {
	env := slices.DeleteFunc(slices.Clone(st.in.Environ), func(v string) bool { return strings.HasPrefix(v, "PACER_SINKS_") })
	kafka, sink := st.services.config.Kafka, envPrefix+"SINKS_"
	for _, v := range [][2]string{
		{envName("kafka.topics"), kafka.Topics[0]}, {envName("kafka.group"), kafka.Group},
		{envName("kafka.topic_prefix"), kafka.TopicPrefix}, {envName("kafka.lanes"), strconv.Itoa(kafka.Lanes)},
		{envName("redis.key_prefix"), st.services.config.Redis.KeyPrefix},
		{envName("postgres.dsn"), st.services.dsn}, {envName("http.listen"), listen},
		{envName("pacing.max_open_age"), benchOpenAge.String()}, {envName("default_sink"), benchHTTP},
		{sink + strings.ToUpper(benchHTTP) + "_TYPE", "http"},
		{sink + strings.ToUpper(benchHTTP) + "_URL", st.receivers[daemon].URL(benchPath)},
		{sink + strings.ToUpper(benchDiscard) + "_TYPE", "discard"},
		{sink + strings.ToUpper(benchDiscard) + "_RECORD", st.recordFile(daemon)},
		{envName("log.level"), "warn"},
	} {
		env = append(env, v[0]+"="+v[1])
	}
	return env
}

// freeAddress is one on this machine where nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }() // only its port is wanted
	return l.Addr().String(), nil
}

// awaitGroup waits until the group has settled with all daemons in it.
func (st *benchStage) awaitGroup(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := st.services.kafka.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{st.name}})
		if err != nil {
			return fmt.Errorf("look at group %s: %w", st.name, err)
		}
		if g := answer.Groups; len(g) == 1 && g[0].GroupState == "Stable" && len(g[0].Members) == len(st.daemons) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the daemons do not agree on who reads what: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// stop ends the daemons, all at once.
func (st *benchStage) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, benchStopTime)
	defer cancel()
	results := make(chan error, len(st.daemons))
	for _, p := range st.daemons {
		go func() { results <- p.Stop(ctx) }()
	}
	var err error
	for range st.daemons {
		err = errors.Join(err, <-results)
	}
	st.daemons, st.listens = nil, nil
	return err
}

// benchCampaign is one campaign of a measurement.
type benchCampaign struct {
	id   string
	rate delivery.Rate
	sink string
}
