package test

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// The ends of sinks whose jobs take several requests each. A job meets its fault at one of them.

// oneOf picks what is the same for a job each time.
func oneOf(id string, list ...string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return list[h.Sum32()/2%uint32(len(list))] // the lowest bit says whether it is taken by one that is deaf
}

// startStepsEnd starts an API of orders: a lookup, a step to be made once, a poll and a last step. Each order is preceded by a lookup of its own.
func startStepsEnd(t *testing.T, d *destination) sinkEnd {
	var g *sinktest.Registry
	searches := searches{unspent: map[string]int{}}
	faulty := func(id, call string) bool {
		calls := []string{"new", "state", "close"}
		switch d.faultOf(id) {
		case gone, throttlesHost, throttlesOne, throttlesIt: // a lookup has no rules, and 410 is one of its answers
		default:
			calls = append(calls, "find")
		}
		return oneOf(id, calls...) == call
	}
	g = sinktest.StartRegistry(t, 1, func(c *sinktest.Call, call, id string, _ int) bool {
		v := d.arrives(id, c.Connection, role{begins: call == "find", faulty: faulty(id, call), ends: call == "close"})
		if call == "new" && v.does != refusesOne { // which net/http writes again
			searches.sent(t, id, id)
		}
		if call == "new" && v.isTaken() && v.does != faultless && v.does != goesAwayNow { // these answer
			g.Take(id)
		}
		d.treat(c, v, func(v *visit) {
			plainly(c, v, func() { c.Answer(http.StatusForbidden, "X-About", string(gone)) }, func() {
				if call == "find" && g.Orders(id) == 0 {
					searches.foundNothing(id)
				}
				g.Usual(c)
			})
		})
		return true
	})
	g.Leave = func(c *sinktest.Call) bool {
		call, id := g.Asked(c)
		return faulty(id, call) && d.leaves(id)
	}
	rules := fmt.Sprintf(`rules: {rejected: 'headers["x-about"] == "%s"', throttled destination: 'headers["x-about"] == "%s"',
            throttled campaign: 'headers["x-about"] == "%s"', throttled recipient: 'headers["x-about"] == "%s"'}`,
		gone, throttlesHost, throttlesOne, throttlesIt)
	return sinkEnd{
		settings: fmt.Sprintf(`type: steps, ca_file: %[2]q, bearer: t0ken, polls_per_second: 1000, steps: [
        {id: create, url: '%[1]s/new?key={{ .ID }}', take: {id: body.order.id}, once: true, %[3]s,
          lookup: {url: '%[1]s/find?key={{ .ID }}', found: 'len(body.items) > 0', take: {id: 'body.items[0].id'}}},
        {id: ready, url: '%[1]s/state?id={{ .Vars.id }}', poll: {every: 500ms, until: 'body.state == "done"'}, %[3]s},
        {id: close, method: DELETE, url: '%[1]s/close?id={{ .Vars.id }}', %[3]s}]`, g.URL, g.CAFile, rules),
		dress: func(*job) {},
		check: func() {
			for id, f := range d.fates() {
				if f.taken > 0 && g.Orders(id) == 0 {
					t.Errorf("%s, %s: taken, and no order was made", id, f.fault)
				}
			}
		},
	}
}

// smevDocument is the payload of a job, and smevJobOf finds the job's id in it.
func smevDocument(id string) []byte {
	return fmt.Appendf(nil, `<q:Ask xmlns:q="urn://example/1.0"><id>%s</id></q:Ask>`, id)
}

func smevJobOf(document string) string {
	_, rest, _ := strings.Cut(document, "<id>")
	id, _, _ := strings.Cut(rest, "</id>")
	return id
}

// startSMEVEnd starts an operator's adapter, which identifies a job by the client's id. A job is taken when its final response is.
func startSMEVEnd(t *testing.T, d *destination) sinkEnd {
	var a *sinktest.Adapter
	var clients sync.Map // ids of jobs, by client's id
	searches := searches{unspent: map[string]int{}}
	faulty := func(id, call string) bool {
		return call == "response" && d.faultOf(id) == gone || d.faultOf(id) != gone && oneOf(id, "send", "response") == call
	}
	say := func(c *sinktest.Call, does fault, usual func()) {
		says{
			fails:        func() { a.Fault(c, "SystemFault", "no") },
			throttlesAll: func() { c.Answer(http.StatusTooManyRequests, "Retry-After", "1") },
			distrusts:    func() { c.Answer(http.StatusUnauthorized) },
			deaf:         c.Hang,
			faultless:    usual,
		}.say(&visit{does: does})
	}
	a = sinktest.StartAdapter(t, sinktest.AdapterOptions{
		Treat: func(c *sinktest.Call, r sinktest.AdapterRequest, _ int) bool {
			id := smevJobOf(r.Content)
			clients.Store(r.ClientID, id)
			v := d.arrives(id, c.Connection, role{begins: true, faulty: faulty(id, "send")})
			searches.sent(t, r.ClientID, id)
			if v.isTaken() {
				a.Register(r)
			}
			d.treat(c, v, func(v *visit) {
				if v.does == refuses {
					a.Fault(c, "ValidationFault", "not by the schema")
					return
				}
				say(c, v.does, func() { a.Accept(c, r.ClientID) })
			})
			return true
		},
		Find: func(c *sinktest.Call, f sinktest.AdapterFind) bool {
			id, known := clients.Load(f.ClientID)
			if !known || !f.Response {
				does := d.deafOrDoubts()
				say(c, does, func() {})
				sent := func(r sinktest.AdapterRequest) bool { return r.ClientID == f.ClientID }
				if does == faultless && !slices.ContainsFunc(a.Requests(), sent) {
					searches.foundNothing(f.ClientID)
				}
				return does != faultless
			}
			// Only a final response says what became of the job.
			v := d.arrives(id.(string), c.Connection, role{faulty: f.Final && faulty(id.(string), "response"), ends: f.Final})
			d.treat(c, v, func(v *visit) { say(c, v.does, f.Usual) })
			return true
		},
		Supplier: func(r sinktest.AdapterRequest) []sinktest.SMEVReply {
			id, final := smevJobOf(r.Content), sinktest.SMEVReply{Kind: "MessagePrimaryContent"}
			switch f := d.faultOf(id); {
			case f == gone:
				final = sinktest.SMEVReply{Kind: "RequestRejected", Code: "NO_DATA"}
			case f == refuses && faulty(id, "response"):
				final = sinktest.SMEVReply{Kind: "AsyncProcessingStatus", Code: "SMEV-102"}
			}
			if oneOf(id, "soon", "soon", "later") == "later" { // after a poll or two
				final.After = 1500 * time.Millisecond
			}
			return []sinktest.SMEVReply{{Kind: "RequestStatus", Code: "1"}, final}
		},
	})
	return sinkEnd{
		settings: fmt.Sprintf(`type: smev, url: %q, ca_file: %q, it_system: %s, poll: {every: 500ms, max: 4s, per_second: 1000}`, a.URL, a.CAFile, a.ItSystem),
		dress:    func(j *job) { j.payload = smevDocument(j.id) },
		check: func() {
			var ids []string
			for _, r := range a.Requests() {
				ids = append(ids, smevJobOf(r.Content))
			}
			slices.Sort(ids)
			onceEach(t, slices.Compact(ids), d.fates())
		},
	}
}

// searches counts the searches for a request that found nothing. Each allows one send: a send that was given up on its way may be taken
// after the next search.
type searches struct {
	mu      sync.Mutex
	unspent map[string]int // by what was searched for
}

func (s *searches) foundNothing(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unspent[key]++
}

// sent reports an error if no search allows the send.
func (s *searches) sent(t *testing.T, key, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unspent[key]--; s.unspent[key] < 0 {
		t.Errorf("%s was sent without a search for it that had found nothing", id)
	}
}

// onceEach: the request of each job that was taken is registered, and none twice.
func onceEach(t *testing.T, registered []string, jobs map[string]fated) {
	t.Helper()
	slices.Sort(registered)
	for i, id := range registered {
		if i > 0 && registered[i-1] == id {
			t.Errorf("%s is registered twice", id)
		}
		delete(jobs, id)
	}
	for id, j := range jobs {
		if j.taken > 0 {
			t.Errorf("%s was taken, and is not registered", id)
		}
	}
}

// startSMEVDirectEnd starts SMEV itself: a job is one request, which is taken when it is registered. Responses come to a queue.
func startSMEVDirectEnd(t *testing.T, d *destination) sinkEnd {
	var s *sinktest.SMEV
	s = sinktest.StartSMEV(t, sinktest.SMEVOptions{
		Treat: func(c *sinktest.Call, r sinktest.SMEVRequest, _ int) bool {
			v := d.arrives(smevJobOf(r.Content), c.Connection, single)
			fault := ""
			if v.isTaken() {
				fault = s.Register(r)
			}
			d.treat(c, v, func(v *visit) {
				says{
					fails:        func() { s.Fault(c, "SMEVFailure") },
					refuses:      func() { s.Fault(c, "InvalidContent") },
					throttlesAll: func() { c.Answer(http.StatusTooManyRequests, "Retry-After", "1") },
					throttlesOne: func() { s.Fault(c, "DestinationOverflow", "Retry-After", "1") },
					distrusts:    func() { s.Fault(c, "SenderIsNotRegistered") },
					faultless: func() {
						if fault != "" {
							s.Fault(c, fault)
							return
						}
						s.Accept(c, r.MessageID)
					},
				}.say(v)
			})
			return true
		},
	})
	return sinkEnd{
		settings: fmt.Sprintf(`type: smev, mode: direct, url: %q, ca_file: %q, collect: {interval: 100ms, parallel: 4}`, s.URL, s.CAFile),
		dress:    func(j *job) { j.payload = smevDocument(j.id) },
		check: func() {
			var ids []string
			for _, r := range s.Requests() {
				ids = append(ids, smevJobOf(r.Content))
			}
			onceEach(t, ids, d.fates())
		},
	}
}
