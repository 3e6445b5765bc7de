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

// faults are those of SendRequest and of the adapter, by the names of the operator's schemas.
var faults = map[string]verdict{
	// MessageIDs are made of the job (see identity): SMEV has this very request.
	"MessageIsAlreadySent": {class: delivery.Delivered},
	"SMEVFailure":          {class: delivery.Temporary, by: delivery.ByNobody},
	soap.SystemFault:       {class: delivery.Temporary, by: delivery.ByNobody},
	"DestinationOverflow":  {class: delivery.Throttled, scope: delivery.ScopeCampaign, wait: overflowWait},
	"QuoteLimitExceeded":   {class: delivery.Throttled, scope: delivery.ScopeCampaign, wait: quoteWait},

	soap.ValidationFault:               {class: delivery.Permanent},
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

// judge returns what an answer without success means: by the fault in it, whatever its status, and else by the status. The text of a fault is
// not repeated: it may quote the payload.
func judge(a httpcall.Answer, f soap.Fault, where string) delivery.Result {
	now := time.Now()
	res, name := a.ByStatus(now), f.Name
	v, counts := faults[name]
	if !counts && f != (soap.Fault{}) && (a.Status < 300 || a.Status >= 500) {
		v, counts = verdict{class: delivery.Temporary, by: delivery.ByDestination}, true
		name = cmp.Or(name, f.Code)
	}
	switch {
	case !counts, v.class == delivery.Temporary && res.Class == delivery.Throttled:
	case v.class == delivery.Throttled:
		res = delivery.Result{Class: v.class, Scope: v.scope, RetryAfter: cmp.Or(a.Wait(now), v.wait)}
	case v.class == delivery.Temporary:
		res.Class, res.By = v.class, v.by
	default:
		res = delivery.Result{Class: v.class, Scope: v.scope}
	}
	if res.Status = a.Status; res.Class == delivery.Delivered {
		return res
	}
	res.Detail = "HTTP " + strconv.Itoa(a.Status) + " from " + where + v.hint
	if name != "" {
		res.Provider = &delivery.Provider{Code: name}
		if f.Code != "" && f.Code != name {
			name += " (" + f.Code + ")"
		}
		res.Detail = name + ", " + res.Detail
	}
	return res
}

// foreign is the result for an answer that is not of SMEV or the adapter, such as a proxy's page, or was cut off.
func foreign(a httpcall.Answer, method, where string) delivery.Result {
	return delivery.Result{
		Class: delivery.Temporary, By: delivery.ByNobody, Status: a.Status,
		Detail: "no answer to " + method + " in an HTTP " + strconv.Itoa(a.Status) + " from " + where + mayHaveArrived,
	}
}

const mayHaveArrived = "; the request may have arrived"
