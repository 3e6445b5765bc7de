package command

import (
	"context"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progressBar is a progress bar on a terminal, and nothing elsewhere.
type progressBar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
}

// newBar makes a progress bar for a number of jobs; 0 if the number is unknown.
func (c *cli) newBar(ctx context.Context, doing string, total int64) *progressBar {
	return c.barOf(ctx, total, decor.Name(doing+" "), decor.CurrentNoUnit("%d jobs"), decor.AverageSpeed(0, " %.0f/s"))
}

// newByteBar makes a progress bar for the bytes of a file.
func (c *cli) newByteBar(ctx context.Context, doing string, total int64) *progressBar {
	return c.barOf(ctx, total, decor.Name(doing))
}

// barOf makes a progress bar which also shows the percentage and the time left, where there is a total.
func (c *cli) barOf(ctx context.Context, total int64, name ...decor.Decorator) *progressBar {
	if !isTerminal(c.Stderr) {
		return &progressBar{}
	}
	progress := mpb.NewWithContext(ctx, mpb.WithOutput(c.Stderr), mpb.WithWidth(50))
	began := time.Now()
	var more []decor.Decorator
	if total > 0 {
		more = []decor.Decorator{decor.Percentage(decor.WCSyncSpace), decor.Any(func(s decor.Statistics) string {
			return timeLeft(s.Current, s.Total, time.Since(began))
		})}
	}
	bar := progress.AddBar(total, mpb.PrependDecorators(name...), mpb.AppendDecorators(more...))
	return &progressBar{progress: progress, bar: bar}
}

// timeLeft is about how long the rest takes, if it goes on as it went; "" where that cannot be told.
func timeLeft(done, total int64, took time.Duration) string {
	if done <= 0 || done >= total || took < time.Second {
		return ""
	}
	left := time.Duration(float64(took) * (float64(total)/float64(done) - 1))
	return ", " + formatSeconds(left) + " left"
}

func (b *progressBar) add(n int) {
	if b.bar != nil {
		b.bar.IncrBy(n)
	}
}

// reader adds the bytes that are read.
func (b *progressBar) reader(r io.Reader) io.Reader {
	if b.bar == nil {
		return r
	}
	if counted := b.bar.ProxyReader(r); counted != nil { // nil once the bar's context has ended
		return counted
	}
	return r
}

// set says how much is done.
func (b *progressBar) set(n int64) {
	if b.bar != nil {
		b.bar.SetCurrent(n)
	}
}

func (b *progressBar) close() {
	if b.bar == nil {
		return
	}
	b.bar.SetTotal(-1, true) // without a known total, the current number is the total
	b.bar.Abort(false)       // with a total that was not reached, the bar stays as it is
	b.progress.Wait()
}
