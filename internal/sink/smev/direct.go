package smev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// direct speaks to SMEV itself: it sends requests, whose acceptance for checking is their delivery. Responses come to a
// queue that all requests of an information system share, and are the collector's.
type direct struct{ *Sink }

// maxAnswer bounds what is read of an answer, in bytes. A fault may quote the payload.
const maxAnswer = 1 << 20

// deliver sends the job's request.
func (d direct) deliver(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	now := time.Now()
	who := identityOf(job)
	k, inDoubt := who.triedAs(job, now)
	id := who.messageID(k)
	r, err := d.newRequest(job, id)
	if err != nil {
		return delivery.Result{Class: delivery.Permanent, Detail: err.Error()}
	}
	if inDoubt && !who.usable(k, now) {
		return delivery.Result{
			Class: delivery.Permanent, Provider: &delivery.Provider{MessageID: id},
			Detail: "SMEV may have the request since two days ago, and does not tell any more; replay the job to send it anew",
		}
	}
	answer, _, res := d.ask(ctx, soap.SendRequest(d.config.Version, r), shown, maxAnswer)
	if res == nil {
		res = &delivery.Result{Class: delivery.Delivered, Status: answer.Status}
	}
	switch res.Class {
	case delivery.Delivered, delivery.Permanent, delivery.Temporary, delivery.Interrupted: // SMEV has the request, or may have it
		inDoubt = true
	}
	if inDoubt {
		res.Provider = provider(res.Provider, id) // the next attempt looks for it
	}
	return *res
}

// triedAs returns the period of the MessageID that the job's request has now: the period of an earlier attempt in doubt, else the current
// one.
func (i identity) triedAs(job *delivery.Job, now time.Time) (k int64, inDoubt bool) {
	k = i.periodAt(now)
	if job.Call.Provider == nil || job.Call.Provider.MessageID == "" {
		return k, false
	}
	for n := range int64(maxPeriods) {
		if i.messageID(k-n) == job.Call.Provider.MessageID {
			return k - n, true
		}
	}
	return k, false // the id of another destination
}

// maxPeriods bounds the periods that are looked back: no job is in doubt for longer.
const maxPeriods = 400

// ask signs a call, sends it and reads the answer. The problem is what is known, or what the answer means, if it is not that of the method. If
// temporary, SMEV may have registered the request, though the answer does not say so.
func (d direct) ask(
	ctx context.Context, c soap.Call, shown *base.Exchange, most int64,
) (answer httpcall.Answer, said soap.Answer, problem *delivery.Result) {
	p := d.Now()
	if c.Envelope, problem = d.sign(ctx, p, c); problem != nil {
		return answer, said, problem
	}
	r := inSOAP(c)
	r.Most, r.Shown = most, shown
	if answer, problem = p.Post(ctx, r); problem != nil {
		return answer, said, problem
	}
	if text, _, err := soap.XML(answer.Header.Get("Content-Type"), answer.Body); err == nil {
		said, _ = soap.Read(text) // an answer without a root is judged by its status
	}
	if said.Root == c.Method+"Response" {
		return answer, said, nil
	}
	res := judge(answer, said.Fault, p.Where())
	switch {
	case said.Root == "Fault":
	case res.Class == delivery.Delivered:
		res = foreign(answer, c.Method, p.Where())
	case res.Class == delivery.Temporary:
		res.By = delivery.ByNobody
		res.Detail += mayHaveArrived
	}
	return answer, said, &res
}

// sign has the call signed. The problem is what is known if it was not: nothing of the request has been sent.
func (d direct) sign(ctx context.Context, p parts, c soap.Call) (envelope []byte, problem *delivery.Result) {
	if p.signer == nil {
		return c.Envelope, nil
	}
	header := http.Header{"Content-Type": {"text/xml; charset=utf-8"}, "X-Signed-Id": {c.SignedID}}
	if p.bearer != "" {
		header.Set("Authorization", "Bearer "+p.bearer)
	}
	most := int64(2*len(c.Envelope) + maxSignature)
	answer, res := p.signer.Post(ctx, httpcall.Request{Body: c.Envelope, Header: header, Most: most})
	if res == nil {
		status := answer.ByStatus(time.Now())
		res = &status
		res.Detail = fmt.Sprintf("HTTP %d from %s", answer.Status, p.signer.Where())
		if res.Class == delivery.Delivered {
			err := signed(c, answer)
			if err == nil {
				return answer.Body, nil
			}
			res.Class, res.Detail = delivery.Misconfigured, p.signer.Where()+": "+err.Error()
		}
	}
	if res.Class == delivery.Temporary || res.Class == delivery.Throttled { // as long as it lasts, nothing can be sent
		res.Class = delivery.Unreachable
	}
	res.Detail = notSigned + strings.TrimSuffix(res.Detail, mayHaveArrived)
	return nil, res
}

const notSigned = "not signed: "

// maxSignature bounds what a signer may add to an envelope, in bytes, besides as much as it has.
const maxSignature = 1 << 20

// signed tells what is wrong with what the signer made of a call.
func signed(c soap.Call, a httpcall.Answer) error {
	if !a.Whole {
		return errors.New("the signed envelope is too long, or was cut off")
	}
	said, err := soap.Read(a.Body)
	switch {
	case err != nil:
		return fmt.Errorf("the answer is no signed envelope: %w", err)
	case said.Root != c.Method+"Request":
		return errors.New("the answer is an envelope with something else in it")
	}
	return nil
}

// check asks SMEV how many responses wait, which needs the same rights as sending, and changes nothing.
func (d direct) check(ctx context.Context) error {
	answer, said, problem := d.ask(ctx, soap.Statistics(d.config.Version, d.config.NodeID, time.Now()), nil, maxAnswer)
	switch {
	case problem == nil, said.Root == "Fault" && problem.Class != delivery.Misconfigured: // SMEV, or what stands in for it, is there
		return nil
	case strings.HasPrefix(problem.Detail, notSigned):
		return fmt.Errorf("signer.url: %s", problem.Detail)
	case answer.Status == 0:
		return fmt.Errorf("url: cannot connect: %s", problem.Detail)
	}
	return fmt.Errorf("url: %s", problem.Detail)
}
