package command

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/requeue"
)

// Bounds on the text output of `dead show`; JSON output is complete.
const (
	shownPayload = 4 << 10
	shownBinary  = 256
)

func (c *cli) deadShow() *cobra.Command {
	var payload bool
	cmd := c.of("show PLACE|JOB-ID", "Show one dead letter: the one at partition/offset, or the newest of a job",
		"the place (3/17, as list prints it) or the job id of one dead letter",
		func(ctx context.Context, args []string) error { return c.showDead(ctx, args[0], payload) })
	cmd.Example = "  pacer dead show 3/17\n  pacer dead show u-42 --payload >payload.json"
	cmd.Flags().BoolVar(&payload, "payload", false, "print the payload's bytes and nothing else")
	return c.withServer(cmd, config.NeedKafka)
}

// deadWhole is the JSON output of `dead show`: the complete dead letter.
type deadWhole struct {
	view.WholeLetter
	// Others are the places of older dead letters of the same job.
	Others []string `json:"others,omitempty"`
}

// showDead is `pacer dead show`: the dead letter at a place, or the newest one of a job.
func (c *cli) showDead(ctx context.Context, what string, payloadOnly bool) error {
	if payloadOnly && c.json {
		return config.Usagef("--payload and --json exclude each other; give one of them")
	}
	if cfg, _, err := config.LoadFor(c.source()); err == nil { // as Kafka's own tools name a place
		what = strings.TrimPrefix(what, requeue.DeadTopic(cfg.Kafka.TopicPrefix)+"/")
	}
	whole, err := c.oneDead(ctx, what)
	if err != nil {
		return err
	}
	if shown := whole.PayloadShown; shown != "" && shown != view.PayloadsAll {
		c.warn("the payload is not shown whole: http.payloads of the console is %q", shown)
	}
	if payloadOnly {
		return c.printPayload(&whole.WholeLetter)
	}
	return c.print(whole, func(p *printer) { writeDead(p, whole) })
}

// payloadOf returns the payload of a letter, as far as it is shown, and how many bytes could not be read.
func payloadOf(w *view.WholeLetter) (payload []byte, lost int) {
	payload = w.PayloadBase64
	if w.Payload != nil {
		payload = []byte(*w.Payload)
	}
	if w.Truncated {
		lost = w.Bytes
	}
	return payload, lost
}

// printPayload writes the payload unchanged, and warns on standard error if it could not be read.
func (c *cli) printPayload(w *view.WholeLetter) error {
	payload, lost := payloadOf(w)
	if _, err := c.Stdout.Write(payload); err != nil {
		return fmt.Errorf("write the payload: %w", err)
	}
	if lost > 0 {
		note := &printer{w: c.Stderr}
		note.line("pacer: the payload is missing: %d bytes could not be read", lost)
		return note.err
	}
	return nil
}

// writeDead writes a dead letter as text.
func writeDead(p *printer, w *deadWhole) {
	p.line("place       %s", w.Place)
	p.line("campaign    %s", campaignField(w.Campaign))
	p.line("job         %s", field(w.JobID))
	p.line("reason      %s", field(w.Reason))
	p.line("detail      %s", cmp.Or(visible(w.Detail), "-"))
	p.line("answer      %s", cmp.Or(visible(w.Answer), "-"))
	p.line("attempts    %d", w.Attempts)
	p.line("origin      %s", field(w.Origin))
	p.line("first read  %s", instant(w.FirstRead, time.RFC3339Nano))
	p.line("died        %s", instant(&w.At, time.RFC3339Nano))
	p.line("expires at  %s", instant(w.ExpiresAt, time.RFC3339Nano))
	p.line("replayed    %s", map[bool]string{true: "yes", false: "no"}[w.Replayed])
	if key := cmp.Or(w.Key, string(w.KeyBase64)); key != "" {
		p.line("key         %s", field(key))
	}
	p.line("headers     %d", len(w.Headers))
	for _, h := range w.Headers {
		p.line("  %s: %s", field(h.Key), field(cmp.Or(h.Value, string(h.ValueBase64))))
	}
	showPayload(p, &w.WholeLetter)
	if len(w.Others) > 0 {
		p.line("older letters of this job: %s", strings.Join(w.Others, ", "))
	}
}

func showPayload(p *printer, w *view.WholeLetter) {
	payload, missing := payloadOf(w)
	lost := ""
	if missing > 0 {
		lost = fmt.Sprintf("; %d could not be read", missing)
	}
	p.line("payload     %d bytes%s", len(payload), lost)
	shown := payload[:min(len(payload), shownPayload)]
	if text, ok := asPrintable(shown); ok {
		for line := range strings.Lines(text) {
			p.line("  %s", visible(strings.TrimRight(line, "\r\n")))
		}
	} else {
		shown = shown[:min(len(shown), shownBinary)]
		for line := range strings.Lines(hex.Dump(shown)) {
			p.line("  %s", strings.TrimRight(line, "\n"))
		}
	}
	if rest := len(payload) - len(shown); rest > 0 {
		p.line("  … %d more bytes; --payload prints all of them", rest)
	}
}

// asPrintable returns the bytes as text, unless they are binary. The last character may have been cut.
func asPrintable(b []byte) (text string, ok bool) {
	for i := 0; i < utf8.UTFMax && len(b) > 0 && !utf8.Valid(b); i++ {
		b = b[:len(b)-1]
	}
	return string(b), utf8.Valid(b) && !strings.ContainsRune(string(b), 0)
}

// visible escapes everything in a text that is invisible or could control a terminal.
func visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
