package page

import "github.com/pacer/pacer/internal/console/view"

// bar is what became of the jobs of a campaign, and where the others are, as parts of one bar.
type bar struct {
	Parts []part
	Total int64
}

// part is one colour of a bar, from X on.
type part struct {
	Class, Name, Link string
	Jobs              int64
	X, Width          float64
}

// barWidth is that of the drawing, and leastWidth that of a part that is to be seen.
const barWidth, leastWidth = 1000, 4

func barOf(c *view.Campaign) *bar {
	b := &bar{}
	add := func(class, name string, jobs int64, link string) {
		if jobs > 0 {
			b.Parts = append(b.Parts, part{Class: class, Name: name, Jobs: jobs, Link: link})
			b.Total += jobs
		}
	}
	dead := linkTo(0, "", "dead", c.ID).Link
	if p := c.Progress; p != nil {
		add("delivered", "delivered", p.Delivered, "")
		add("rejected", "rejected", p.Rejected, "")
		add("dead", "dead", p.Dead, dead)
		add("expired", "expired", p.Expired, "")
		add("expired", "cancelled", p.Cancelled, "")
		add("expired", "capped", p.Capped, "")
	}
	if w := c.States; w != nil {
		add("flying", "in flight", w.InFlight, "")
		add("retrying", "retrying", w.Retrying, "")
		add("waiting", "waiting", w.Waiting, "")
	}
	if b.Total == 0 {
		return nil
	}
	all := max(b.Total, c.ExpectedTotal)
	add("coming", "to come", all-b.Total, "")
	left, largest := float64(barWidth), 0
	for i := range b.Parts {
		p := &b.Parts[i]
		p.Width = max(leastWidth, round(float64(p.Jobs)/float64(all)*barWidth))
		if left -= p.Width; p.Jobs > b.Parts[largest].Jobs {
			largest = i
		}
	}
	b.Parts[largest].Width += left // which makes room for what would not be seen
	x := 0.0
	for i := range b.Parts {
		b.Parts[i].X = round(x)
		x += b.Parts[i].Width
	}
	return b
}
