package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

const (
	keyHeader = "Idempotency-Key"
	maxKey    = 128
	// replayedHeader says that an answer is that to the same request before.
	replayedHeader = "Idempotency-Replayed"
	// keepWithin bounds keeping an answer, also of a client that has left.
	keepWithin = 5 * time.Second
)

// keyParam describes the header of operations that are not idempotent by themselves: all that POST.
func keyParam() *huma.Param {
	length := maxKey
	return &huma.Param{
		Name: keyHeader, In: "header",
		Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &length, Pattern: "^[ -~]*$"},
		Description: "made up by you for this request: sent again within 24 hours, to whichever process, it is not done again, and answered as before, " +
			"with the header " + replayedHeader,
	}
}

func validKey(key string) bool {
	return len(key) <= maxKey && !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
}

// once lets a request with an Idempotency-Key be done once, as draft-ietf-httpapi-idempotency-key-header has it. It is claimed in the
// database before it is done; if it has changed something its answer is kept, and otherwise it is forgotten. If this process ends in
// between, or whether something was changed is not known, the claim stays, and whoever asks again is told so.
func (s *server) once(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		key, keys := ctx.Header(keyHeader), s.looker.Sources().Keys
		if key == "" || ctx.Method() != http.MethodPost {
			next(ctx)
			return
		}
		if !validKey(key) {
			_ = huma.WriteErr(api, ctx, http.StatusUnprocessableEntity, "validation failed",
				&huma.ErrorDetail{Message: fmt.Sprintf("give at most %d printable ASCII characters", maxKey), Location: "header." + keyHeader})
			return
		}
		if keys == nil {
			next(ctx)
			return
		}
		body, err := io.ReadAll(io.LimitReader(ctx.BodyReader(), maxBody+1))
		r := &recorder{asked: ctx, header: http.Header{}, body: io.MultiReader(bytes.NewReader(body), broken{err})}
		if err != nil || len(body) > maxBody { // huma refuses what is too large, or not whole
			r.through, r.body = true, io.MultiReader(r.body, ctx.BodyReader())
			next(r)
			return
		}
		at := ctx.URL()
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", at.RequestURI(), ctx.Header("If-Match"), ctx.Header("Content-Type"), body))
		claim, before, err := keys.Claim(ctx.Context(), view.KeyedRequest{Actor: auth.Of(ctx.Context()).Name, Key: key, Fingerprint: sum[:]})
		switch {
		case err != nil:
			writeProblem(api, ctx, keyProblem(err))
		case before != nil:
			ctx.SetHeader(replayedHeader, "true")
			send(ctx, before)
		default:
			next(r)
			answer := view.KeptAnswer{Status: r.status, Header: r.header, Body: r.answer.String()}
			s.settle(ctx.Context(), claim, &answer)
			send(ctx, &answer)
		}
	}
}

// settle keeps the answer to a request, if that has changed something.
func (s *server) settle(ctx context.Context, claim view.KeyClaim, answer *view.KeptAnswer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWithin)
	defer cancel()
	failed := answer.Status >= http.StatusBadRequest
	switch is := func(kind Kind) bool { return strings.Contains(answer.Body, `"`+typePrefix+string(kind)+`"`) }; {
	case failed && is(inDoubt):
		if err := claim.Leave(ctx); err != nil {
			s.log.Warn("whether a request with an Idempotency-Key was done is not known; sent again it is refused, for some minutes as being done",
				"request", auth.RequestID(ctx), "error", err)
		}
		return
	case failed && !is(partlyDone):
		if err := claim.Drop(ctx); err != nil {
			s.log.Warn("an Idempotency-Key cannot be given back; it is refused", "request", auth.RequestID(ctx), "error", err)
		}
		return
	}
	if err := claim.Keep(ctx, *answer); err != nil {
		s.log.Warn("the answer to a request with an Idempotency-Key cannot be kept; sent again it is refused", "request", auth.RequestID(ctx), "error", err)
	}
}

// keyProblem converts an error of a claim.
func keyProblem(err error) error {
	for _, as := range []struct {
		err  error
		kind Kind
	}{{view.ErrKeyReused, keyReused}, {view.ErrKeyInUse, keyInUse}, {view.ErrKeyUnfinished, keyUnfinished}, {view.ErrBusy, busy}} {
		if errors.Is(err, as.err) {
			return fail(as.kind, line(err))
		}
	}
	if errors.Is(err, view.ErrInDoubt) {
		return absent("whether the key is remembered is not known; nothing was done: " + line(err))
	}
	return problem(err, Conflict)
}

// writeProblem answers with a problem.
func writeProblem(api huma.API, ctx huma.Context, err error) {
	model, ok := errors.AsType[*huma.ErrorModel](err)
	if !ok {
		return // fail makes nothing else
	}
	ctx.SetHeader("Content-Type", "application/problem+json")
	ctx.SetStatus(model.Status)
	_ = api.Marshal(ctx.BodyWriter(), "application/json", model)
}

func send(ctx huma.Context, answer *view.KeptAnswer) {
	for name, values := range answer.Header {
		for _, value := range values {
			ctx.AppendHeader(name, value)
		}
	}
	ctx.SetStatus(answer.Status)
	_, _ = io.WriteString(ctx.BodyWriter(), answer.Body) // to a client that may have left
}

// asked is a request as huma has it; embedded under this name, since that of huma is one of its methods as well.
type asked = huma.Context

// recorder is a context whose body was read before, and whose answer is recorded.
type recorder struct {
	asked
	body    io.Reader
	through bool // nothing is recorded

	status int
	header http.Header
	answer bytes.Buffer
}

// BodyReader implements huma.Context.
func (r *recorder) BodyReader() io.Reader { return r.body }

// SetStatus implements huma.Context.
func (r *recorder) SetStatus(code int) {
	if r.status = code; r.through {
		r.asked.SetStatus(code)
	}
}

// Status implements huma.Context.
func (r *recorder) Status() int { return r.status }

// SetHeader implements huma.Context.
func (r *recorder) SetHeader(name, value string) {
	if r.header.Set(name, value); r.through {
		r.asked.SetHeader(name, value)
	}
}

// AppendHeader implements huma.Context.
func (r *recorder) AppendHeader(name, value string) {
	if r.header.Add(name, value); r.through {
		r.asked.AppendHeader(name, value)
	}
}

// BodyWriter implements huma.Context.
func (r *recorder) BodyWriter() io.Writer {
	if r.through {
		return r.asked.BodyWriter()
	}
	return &r.answer
}

// broken is the end of a body that could not be read.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return 0, io.EOF
}
