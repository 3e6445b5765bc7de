package smev

import (
	"cmp"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// How long to wait after a fault that asks for it and does not say.
const (
	overflowWait = 30 * time.Second // the recipient's queue is full; the operator's advice is to go on until it is taken
	quoteWait    = 5 * time.Minute  // for somebody to free space: it is one of attachments, and no rate
)

// verdict is what a fault means.
type verdict struct {
	class delivery.ResultClass
	scope delivery.Scope
	wait  time.Duration
	by    delivery.Answerer
	hint  string // for the detail
}

// faults are those of SendRequest, by the names of the operator's schema.
var faults = map[string]verdict{
	// MessageIDs are made of the job (see identity): SMEV has this very request.
	"MessageIsAlreadySent": {class: delivery.Delivered},
	"SMEVFailure":          {class: delivery.Temporary, by: delivery.ByNobody},
	"DestinationOverflow":  {class: delivery.Throttled, scope: delivery.ScopeCampaign, wait: overflowWait},
	"QuoteLimitExceeded":   {class: delivery.Throttled, scope: delivery.ScopeCampaign, wait: quoteWait},

	"InvalidContent":                   {class: delivery.Permanent},
	"BusinessDataTypeIsNotSupported":   {class: delivery.Permanent},
	"AttachmentContentMiscoordination": {class: delivery.Permanent},
	"AttachmentSizeLimitExceeded":      {class: delivery.Permanent},
	"InvalidMessageIdFormat":           {class: delivery.Permanent},
	"TransactionCodeInvalid":           {class: delivery.Permanent},
	"UnknownMessageType":               {class: delivery.Permanent},
	"RecipientIsNotFound":              {class: delivery.Permanent},
	"PersonalAccessDenied":             {class: delivery.Permanent},
	"EndOfLifeReached":                 {class: delivery.Permanent},
	"EndOfLife":                        {class: delivery.Permanent},

	"AccessDenied":               {class: delivery.Misconfigured, scope: delivery.ScopeCampaign},
	"SenderIsNotRegistered":      {class: delivery.Misconfigured},
	"SignatureVerificationFault": {class: delivery.Misconfigured},
	"StaleMessageId":             {class: delivery.Misconfigured, hint: "; is the clock right?"},
}

// classify returns what an answer to SendRequest means: if temporary, SMEV may have registered the request, though the answer does not say so.
// The texts of a fault are not repeated: they may quote the payload.
func classify(a httpcall.Answer, said soap.Answer, where string, now time.Time) delivery.Result {
	res := a.ByStatus(now)
	from := " from " + where
	switch {
	case said.Root == "SendRequestResponse":
		return delivery.Result{Class: delivery.Delivered, Status: a.Status}
	case said.Root == "Fault":
		return byFault(a, said.Fault, from, now)
	case res.Class == delivery.Delivered: // by a proxy, or cut off
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
		res.Detail = "no answer of SMEV in an HTTP " + strconv.Itoa(a.Status) + from + mayHaveArrived
		return res
	}
	res.Detail = "HTTP " + strconv.Itoa(a.Status) + from
	if res.Class == delivery.Temporary {
		res.By = delivery.ByNobody
		res.Detail += mayHaveArrived
	}
	return res
}

func byFault(a httpcall.Answer, f soap.Fault, from string, now time.Time) delivery.Result {
	v, known := faults[f.Name]
	if !known {
		v = verdict{class: delivery.Temporary, by: delivery.ByDestination}
	}
	res := delivery.Result{Class: v.class, Scope: v.scope, By: v.by, Status: a.Status}
	name := cmp.Or(f.Name, "SOAP fault")
	if f.Code != "" && f.Code != f.Name {
		name += " (" + f.Code + ")"
	}
	switch v.class {
	case delivery.Delivered:
		return res
	case delivery.Throttled:
		res.RetryAfter = cmp.Or(a.Wait(now), v.wait)
	case delivery.Temporary:
		by := a.ByStatus(now)
		if res.RetryAfter = by.RetryAfter; by.Class == delivery.Throttled {
			res.Class, res.By = by.Class, by.By
		}
	}
	res.Detail = name + from + v.hint
	res.Provider = &delivery.Provider{Code: cmp.Or(f.Name, f.Code)}
	return res
}
