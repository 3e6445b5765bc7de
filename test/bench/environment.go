package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/test/recording"
)

const (
	ingressPartitions = 12 // of the ingress topic: shared evenly by one, two, three, four, six or twelve daemons
	lanes             = 16
	receiverPath      = "/deliver"
	sinkHTTP          = "benchhttp" // names of sinks
	sinkDiscard       = "benchdiscard"
	// openAge is max_open_age of the daemons. It is so long that no job goes to a lane, which only one daemon reads,
	// so that each of several daemons has jobs all the time.
	openAge   = time.Hour
	readyTime = 30 * time.Second
	stopTime  = 25 * time.Second
	cleanTime = 30 * time.Second
)

// environment is a measurement's private part of the configured services: topics, a consumer group, a key prefix, a
// database, receivers, and daemons. It is not safe for concurrent use. close removes everything that was made.
type environment struct {
	options    *Options
	services   *app.Services // of a configuration with the names below
	name       string        // of everything it makes
	folder     string
	epoch      time.Time
	redis      *shards.Set
	db         *pgx.Conn
	receivers  []*count.Receiver // by daemon
	recordings []*recording.File
	owners     map[string]owner // by campaign, of the runs without a report so far
	daemons    []*Process
	listens    []string
	undo       []func(ctx context.Context) error
}

// open makes an environment for at most that many daemons. The error concerns a service that could not be used; after
// an error nothing is left behind.
func open(ctx context.Context, o *Options, daemons int) (*environment, error) {
	cfg, log, err := o.services()
	if err != nil {
		return nil, err
	}
	st := &environment{options: o, name: "pacer-bench-" + strings.ToLower(rand.Text()[:12]), epoch: time.Now()}
	server := cfg.Postgres.DSN.Reveal()
	cfg.Kafka.Group, cfg.Kafka.TopicPrefix, cfg.Kafka.Lanes = st.name, st.name+".", lanes
	cfg.Kafka.Topics = []string{st.name + ".jobs"}
	cfg.Redis.KeyPrefix = cfg.Kafka.TopicPrefix
	cfg.Postgres.DSN = config.Secret(withDatabase(server, st.database()))
	st.services = app.NewServices(cfg, log)
	if err := st.services.OpenKafka(); err != nil {
		return nil, err
	}
	st.undo = append(st.undo, func(context.Context) error { st.services.Close(); return nil })
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

func (st *environment) database() string { return strings.ReplaceAll(st.name, "-", "_") }

// withDatabase returns the DSN, a URL or a list of key=value, for another database.
func withDatabase(dsn, name string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return dsn + " dbname=" + name // of duplicates the last counts
	}
	u.Path = "/" + name
	return u.String()
}

// close stops the daemons and removes everything that was made, in reverse order, also after ctx has ended.
func (st *environment) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	err := st.stop(ctx)
	for _, undo := range slices.Backward(st.undo) {
		err = errors.Join(err, undo(ctx))
	}
	st.undo = nil
	return err
}

func (st *environment) makeFolder() (err error) {
	if st.folder, err = os.MkdirTemp("", st.name); err != nil {
		return fmt.Errorf("make a folder for what is recorded: %w", err)
	}
	st.undo = append(st.undo, func(context.Context) error { return os.RemoveAll(st.folder) })
	return nil
}

func (st *environment) makeDatabase(ctx context.Context, server string) error {
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
	migrator, err := catalog.NewMigrator(st.services.DSN())
	if err != nil {
		return err
	}
	if _, err := migrator.Up(ctx); err != nil {
		return err
	}
	if st.db, err = pgx.Connect(ctx, st.services.DSN()); err != nil {
		return fmt.Errorf("postgres.dsn: %w", err)
	}
	st.undo = append(st.undo, st.db.Close)
	return nil
}

func (st *environment) makeTopics(ctx context.Context) error {
	client, topics := st.services.Kafka, st.services.Topics
	st.undo = append(st.undo, st.removeTopics)
	_, err := client.CreateTopics(ctx, []broker.Topic{{
		Name: topics.Ingress[0], Partitions: ingressPartitions, Replicas: max(1, topics.ReplicationFactor),
	}}, nil)
	if err == nil {
		_, err = requeue.EnsureTopics(ctx, client, topics, nil)
	}
	if err != nil {
		return fmt.Errorf("kafka.brokers: make topics: %w", err)
	}
	return st.awaitTopics(ctx)
}

// awaitTopics waits until the new topics have leaders, and until this process's metadata contains them.
func (st *environment) awaitTopics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		_, err := st.services.Kafka.Partitions(ctx, st.services.Topics.Ingress[0])
		if err == nil {
			_, err = st.requeued(ctx)
		}
		if err == nil || retry.Sleep(ctx, sampleEvery) != nil {
			return err
		}
	}
}

// removeTopics deletes the topics and the group. It is no error if a topic does not exist.
func (st *environment) removeTopics(ctx context.Context) error {
	client := kafka.Client{Addr: kafka.TCP(st.services.Config.Kafka.Brokers...)}
	answer, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{st.name}})
	if err == nil && !errors.Is(answer.Errors[st.name], kafka.GroupIdNotFound) {
		err = answer.Errors[st.name]
	}
	return errors.Join(st.services.Kafka.DeleteTopics(ctx, st.services.Topics.Names()), err)
}

// openReceivers starts one receiver per daemon, so that the sender of each job is known.
func (st *environment) openReceivers(ctx context.Context, n int) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	st.undo = append(st.undo, func(context.Context) error { stop(); return nil })
	for i := range n {
		r, err := count.Listen(count.ReceiverOptions{
			Paths: map[string]count.Behaviour{receiverPath: {}}, Log: st.services.Log,
		})
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(running) }()
		st.undo = append(st.undo, func(context.Context) error { stop(); return <-ended })
		st.receivers = append(st.receivers, r)
		st.recordings = append(st.recordings, recording.New(st.recordFile(i)))
	}
	return nil
}

func (st *environment) recordFile(daemon int) string {
	return filepath.Join(st.folder, fmt.Sprintf("sent-%d", daemon))
}

// create writes campaigns to the catalog, before the daemons start: they would put jobs of unknown campaigns into a
// timer.
func (st *environment) create(ctx context.Context, campaigns []campaign) error {
	ids, sinks := make([]string, len(campaigns)), make([]string, len(campaigns))
	units, periods := make([]int64, len(campaigns)), make([]int64, len(campaigns))
	for i, c := range campaigns {
		ids[i], sinks[i], units[i], periods[i] = c.id, c.sink, c.rate.N, c.rate.Per
	}
	// A rate in lowest terms is whole units per microseconds; a thousand times both gives a period that is long
	// enough.
	_, err := st.db.Exec(ctx, `INSERT INTO pacer.campaigns (id, sink, send_rate, send_per)
SELECT id, sink, units * 1000, make_interval(secs => period / 1000.0) FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
AS c(id, sink, units, period)`, ids, sinks, units, periods)
	if err != nil {
		return fmt.Errorf("create campaigns: %w", err)
	}
	return nil
}

// launch creates campaigns, starts a number of daemons, and waits until all share the partitions.
func (st *environment) launch(ctx context.Context, n int, campaigns []campaign) error {
	if err := st.create(ctx, campaigns); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	args := []string{"run"}
	if st.options.Config != "" {
		args = append(args, "--config", st.options.Config)
	}
	for i := range n {
		listen, err := freeAddress()
		if err != nil {
			return err
		}
		cmd := exec.Command(st.options.Daemon, args...)
		cmd.Env = st.environment(i, listen)
		p, err := Start(cmd, filepath.Join(st.folder, fmt.Sprintf("log-%d", i)))
		if err != nil {
			return err
		}
		st.daemons, st.listens = append(st.daemons, p), append(st.listens, listen)
	}
	for i, p := range st.daemons {
		err := p.AwaitReady(ctx, func(ctx context.Context) error { return console.AskReady(ctx, st.listens[i]) })
		if err != nil {
			return err
		}
	}
	return st.awaitGroup(ctx)
}

// environment returns the environment of one daemon: that of this process, with the settings of the measurement.
func (st *environment) environment(daemon int, listen string) []string {
	env := slices.DeleteFunc(slices.Clone(st.options.Environ), func(v string) bool { return strings.HasPrefix(v, "PACER_SINKS_") })
	kafka, sink := st.services.Config.Kafka, config.EnvPrefix+"SINKS_"
	for _, v := range [][2]string{
		{config.EnvName("kafka.topics"), kafka.Topics[0]}, {config.EnvName("kafka.group"), kafka.Group},
		{config.EnvName("kafka.topic_prefix"), kafka.TopicPrefix}, {config.EnvName("kafka.lanes"), strconv.Itoa(kafka.Lanes)},
		{config.EnvName("redis.key_prefix"), st.services.Config.Redis.KeyPrefix},
		{config.EnvName("postgres.dsn"), st.services.DSN()}, {config.EnvName("http.listen"), listen}, {config.EnvName("http.metrics_listen"), "off"},
		{config.EnvName("pacing.max_open_age"), openAge.String()}, {config.EnvName("default_sink"), sinkHTTP},
		{sink + strings.ToUpper(sinkHTTP) + "_TYPE", "http"},
		{sink + strings.ToUpper(sinkHTTP) + "_URL", st.receivers[daemon].URL(receiverPath)},
		{sink + strings.ToUpper(sinkDiscard) + "_TYPE", "discard"},
		{sink + strings.ToUpper(sinkDiscard) + "_RECORD", st.recordFile(daemon)},
		{config.EnvName("log.level"), "warn"},
	} {
		env = append(env, v[0]+"="+v[1])
	}
	return env
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }() // only its port is needed
	return l.Addr().String(), nil
}

// awaitGroup waits until the group is stable with all daemons in it.
func (st *environment) awaitGroup(ctx context.Context) error {
	for {
		members, stable, err := st.services.Kafka.Members(ctx, st.name)
		if err != nil {
			return fmt.Errorf("look at group %s: %w", st.name, err)
		}
		if stable && members == len(st.daemons) {
			return nil
		}
		if retry.Sleep(ctx, lookEvery) != nil {
			return fmt.Errorf("the daemons do not agree on who reads what: %w", context.Cause(ctx))
		}
	}
}

// stop stops all daemons at the same time.
func (st *environment) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
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

type campaign struct {
	id   string
	rate delivery.Rate
	sink string
}
