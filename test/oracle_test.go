package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/requeue"
)

// The oracle counts the log itself, and compares what people see with that, once a second: the CLI, the API, the page, the table and the
// metrics. A figure is true if it is within 2 % of what the log and the receiver said at some time of the last figuresLag. It is wrong if it is not
// in two looks in a row: on a busy machine, a look takes some seconds itself.
const (
	figuresPart = 0.02
	// figuresHeal is how long figures may be wrong after a kill.
	figuresHeal = time.Minute
)

// figuresLag is 5 s in chaos, and 8 in make test, which runs other tests beside it.
var figuresLag = map[bool]time.Duration{true: 5 * time.Second, false: 8 * time.Second}[os.Getenv("CHAOS") == "full"]

type oracle struct {
	s       *stack
	watched []string // campaigns
	others  []*receiver
	log     jobs.Topics
	db      *pgx.Conn

	mu      sync.Mutex // guards those below
	daemons []*daemon
	excused time.Time // until then figures may be wrong
	truths  []truth
	causes  map[string][]string // by campaign, those in turn since the last change
	last    map[string][]string // the figures of the last look that are wrong
	wrong   []string
	looks   int

	ended context.CancelFunc
	done  chan struct{}
}

// truth is what is so of each campaign, from the moment when it was begun to be counted to the one when that was over.
type truth struct {
	from, to time.Time
	of       map[string]counted
}

type counted struct{ backlog, timers, accepted, again float64 }

// watch begins to look at what is shown of campaigns, by these daemons. Their jobs arrive at the stack's receiver, and at others.
func (s *stack) watch(campaigns []string, others []*receiver, daemons ...*daemon) *oracle {
	s.t.Helper()
	db, err := pgx.Connect(context.Background(), s.dsn)
	noError(s.t, err)
	o := &oracle{
		s: s, watched: campaigns, others: others, daemons: daemons, db: db, causes: map[string][]string{}, done: make(chan struct{}),
		log: jobs.Topics{Client: s.cluster, Group: s.ingress, TopicSpec: requeue.TopicSpec{Prefix: s.prefix, Ingress: []string{s.ingress}}},
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.ended = sync.OnceFunc(func() {
		cancel()
		<-o.done
		_ = db.Close(context.Background())
	})
	s.t.Cleanup(o.ended)
	go o.run(ctx)
	return o
}

func (o *oracle) run(ctx context.Context) {
	defer close(o.done)
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; {
		o.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// excuse says that a daemon is killed: the others are asked from now on, and have a minute.
func (o *oracle) excuse(left ...*daemon) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.daemons, o.excused = slices.Clone(left), time.Now().Add(figuresHeal)
}

// changed says that reasons may change now.
func (o *oracle) changed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.causes)
}

// right returns which figures were wrong when they were looked at last.
func (o *oracle) right() (wrong []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, list := range o.last {
		wrong = append(wrong, list...)
	}
	return wrong
}

// end waits until all figures are right, and says what was wrong.
func (o *oracle) end() {
	o.s.t.Helper()
	for deadline := time.Now().Add(figuresHeal); len(o.right()) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Second)
	}
	o.ended()
	o.s.t.Logf("figures were looked at %d times", o.looks)
	for _, line := range o.right() {
		o.s.t.Errorf("at the end: %s", line)
	}
	for _, line := range o.wrong[:min(len(o.wrong), 10)] {
		o.s.t.Error(line)
	}
	if more := len(o.wrong) - 10; more > 0 {
		o.s.t.Errorf("and %d more figures were wrong", more)
	}
	if o.looks == 0 {
		o.s.t.Error("no figure was looked at")
	}
}

// look reads what is shown, counts afterwards, so that no figure is newer than every count, and compares.
func (o *oracle) look(ctx context.Context) {
	began := time.Now()
	o.mu.Lock()
	daemons := slices.Clone(o.daemons)
	o.mu.Unlock()
	figures := map[string][]figure{}
	for _, id := range o.watched {
		figures[id] = o.shown(ctx, id, daemons)
	}
	t, err := o.count(ctx)
	if err != nil {
		return // the next look counts
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if first := t.to.Add(figuresLag + time.Second); len(o.truths) == 0 && first.After(o.excused) {
		o.excused = first // what was so before this count is not known
	}
	o.truths = append(slices.DeleteFunc(o.truths, func(is truth) bool { return is.to.Before(began.Add(-figuresLag - time.Second)) }), t)
	o.looks++
	before := o.last
	o.last = map[string][]string{}
	for id, list := range figures {
		for _, f := range list {
			why := o.judge(id, f)
			if why == "" {
				continue
			}
			o.last[id] = append(o.last[id], why)
			what, _, _ := strings.Cut(why, " is ")
			again := slices.ContainsFunc(before[id], func(was string) bool { return strings.HasPrefix(was, what) })
			if began.After(o.excused) && (again || f.what == "percent") {
				o.wrong = append(o.wrong, why)
			}
		}
	}
}

// count counts the distinct jobs that are not settled in ingress, lanes and timers, by campaign.
func (o *oracle) count(ctx context.Context) (t truth, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	t = truth{from: time.Now(), of: map[string]counted{}}
	all, err := o.s.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return t, err
	}
	var topics []string
	for _, topic := range all.Topics {
		if topic.Name == o.s.ingress || topic.Name == requeue.LaneTopic(o.s.prefix) || strings.HasPrefix(topic.Name, o.s.prefix+"timer.") {
			topics = append(topics, topic.Name)
		}
	}
	seen := map[string]map[string]bool{}
	err = o.log.Each(ctx, topics, false, func(at broker.Partition, r *delivery.Record, open bool) {
		id, job := r.Header(delivery.HeaderCampaign), r.Header(delivery.HeaderJobID)
		if !open || seen[id][job] {
			return
		}
		if seen[id] == nil {
			seen[id] = map[string]bool{}
		}
		seen[id][job] = true
		c := t.of[id]
		if c.backlog++; strings.HasPrefix(at.Topic, o.s.prefix+"timer.") {
			c.timers++
		}
		t.of[id] = c
	})
	for _, id := range o.watched {
		c := t.of[id]
		for _, r := range append(o.others, o.s.receiver) {
			accepted, again := r.accepted(id)
			c.accepted, c.again = c.accepted+float64(accepted), c.again+float64(again)
		}
		t.of[id] = c
	}
	t.to = time.Now()
	return t, err
}

// figure is one that people see.
type figure struct {
	surface, what string
	value         float64
}

// progressShown is a campaign in JSON.
type progressShown struct {
	Backlog float64
	States  struct {
		Waiting  float64 `json:"waiting"`
		Retrying float64 `json:"retrying"`
		InFlight float64 `json:"in_flight"`
	} `json:"backlog_states"`
	Held     *struct{ Cause string }
	Progress struct {
		Delivered, Backlog float64
		Percent            *float64
	}
}

func (p *progressShown) figures(surface string) []figure {
	list := []figure{
		{surface, "backlog", p.Backlog}, {surface, "backlog", p.Progress.Backlog},
		{surface, "backlog", p.States.Waiting + p.States.Retrying + p.States.InFlight}, {surface, "delivered", p.Progress.Delivered},
	}
	if p.Progress.Percent != nil {
		list = append(list, figure{surface, "percent", *p.Progress.Percent})
	}
	return list
}

var backlogTile = regexp.MustCompile(`<dt>Backlog</dt><dd>([^<]*)<`)

// shown is what the surfaces say of a campaign; what does not answer says nothing.
func (o *oracle) shown(ctx context.Context, id string, daemons []*daemon) (list []figure) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var p progressShown
	if out, err := o.s.try("campaign", "show", id, "--json"); err == nil && json.Unmarshal([]byte(out), &p) == nil {
		list = append(list, p.figures("pacer campaign show")...)
		o.reason(id, p.Held)
	}
	var backlog, delivered int64
	if o.db.QueryRow(ctx, `SELECT backlog, delivered FROM pacer.campaign_progress WHERE campaign_id = $1`, id).Scan(&backlog, &delivered) == nil {
		list = append(list, figure{"SQL", "backlog", float64(backlog)}, figure{"SQL", "delivered", float64(delivered)})
	}
	metric := math.NaN()
	for _, d := range daemons {
		var p progressShown
		if body := d.read("/api/v1/campaigns/" + id); json.Unmarshal(body, &p) == nil && len(body) > 0 {
			list = append(list, p.figures("API of "+d.name)...)
		}
		if found := backlogTile.FindSubmatch(d.read("/campaign?id=" + id)); found != nil {
			if n, err := strconv.ParseFloat(strings.Map(digitsOnly, string(found[1])), 64); err == nil {
				list = append(list, figure{"page of " + d.name, "backlog", n})
			}
		}
		if n := d.backlogOf(id); n >= 0 {
			metric = n
		}
	}
	if !math.IsNaN(metric) {
		list = append(list, figure{"metrics", "backlog", metric})
	}
	return list
}

// underCurve is the sum of what was delivered under the curve of a campaign.
func (d *daemon) underCurve(id string) (sum int64) {
	var past struct{ Points []struct{ Delivered int64 } }
	_ = json.Unmarshal(d.read("/api/v1/campaigns/"+id+"/history?last=1h"), &past)
	for _, p := range past.Points {
		sum += p.Delivered
	}
	return sum
}

func digitsOnly(r rune) rune {
	if r >= '0' && r <= '9' {
		return r
	}
	return -1
}

// backlogOf is the backlog of a campaign in the daemon's metrics, in all states; -1 if it shows none.
func (d *daemon) backlogOf(campaign string) float64 {
	if sum, ok := sumOf(d.read("/metrics"), `pacer_campaign_backlog{campaign="`+campaign+`",`); ok {
		return sum
	}
	return -1
}

// judge says what is wrong with a figure; "" if it is true.
func (o *oracle) judge(id string, f figure) string {
	if f.what == "percent" {
		if f.value > 100 {
			return fmt.Sprintf("%s: %s is %.1f %% done", f.surface, id, f.value)
		}
		return ""
	}
	least, most := math.Inf(1), math.Inf(-1)
	for _, t := range o.truths {
		n, again := t.of[id].backlog, 0.0
		if f.what == "delivered" {
			n, again = t.of[id].accepted, t.of[id].again // what is sent twice may count twice
		}
		least, most = min(least, n), max(most, n+again)
	}
	if slack := max(2, figuresPart*most); f.value < least-slack || f.value > most+slack {
		return fmt.Sprintf("%s: the %s of %s is %.0f, and %.0f to %.0f in the last %s", f.surface, f.what, id, f.value, least, most, figuresLag)
	}
	return ""
}

// reason notes what holds a campaign. One that comes back while nothing changes has flipped.
func (o *oracle) reason(id string, held *struct{ Cause string }) {
	if held == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.causes[id]
	if len(before) > 0 && before[len(before)-1] == held.Cause {
		return
	}
	if slices.Contains(before, held.Cause) {
		o.wrong = append(o.wrong, fmt.Sprintf("what holds %s flips: %s, then %s again", id, strings.Join(before, ", "), held.Cause))
	}
	o.causes[id] = append(before, held.Cause)
}

// inTimers is how many jobs of a campaign were in timers when the log was counted last.
func (o *oracle) inTimers(id string) float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.truths) == 0 {
		return 0
	}
	return o.truths[len(o.truths)-1].of[id].timers
}
