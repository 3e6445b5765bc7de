package progress

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// part is what one daemon knows, or, as a summary, what all daemons know together. It identifies campaigns by their hashes.
// Parts are encoded by the names of their fields.
type part struct {
	Format int
	Late   lateness              // as this daemon computes it
	Lanes  delivery.LanesBacklog // in a summary, of each lane the count that is valid
	Memory []memory
	Sent   []count // units, by campaign; of a daemon since it started
	Denied []count // asks that windows of quotas reduced or denied, by windowHash; the same
	Stuck  []note  // what this daemon found out about campaigns
	Nodes  []Node  // the daemon itself; in a summary all that run
	Sinks  []SinkReport

	// Of summaries only.
	Daemons int    // that run
	Silent  []int  // lanes whose daemon runs no more
	Holds   []note // what holds campaigns
}

// memory is what daemons have of a campaign in memory.
type memory struct {
	Campaign uint64
	Direct   int64 // jobs that are in no lane
	Jobs     int64 // all jobs
	Units    int64 // weights of these
	InHand   int64 // jobs that its sink has been given and has not answered; those of lanes wait as well
	Early    int64 // of Jobs, those whose time has not come
	Turn     int64 // when the rate next allows a job, in microseconds since the Unix epoch; 0: soon, or not known
}

// plus adds what another daemon has of the campaign.
func (m memory) plus(o memory) memory {
	turn := min(m.Turn, o.Turn)
	if turn == 0 {
		turn = max(m.Turn, o.Turn)
	}
	return memory{o.Campaign, m.Direct + o.Direct, m.Jobs + o.Jobs, m.Units + o.Units, m.InHand + o.InHand, m.Early + o.Early, turn}
}

// count is a number about a campaign or a window, which is known by its hash.
type count struct {
	Of uint64
	N  int64
}

// note is what a daemon says of a campaign.
type note struct {
	Campaign uint64
	Cause    hold.Cause
	Since    int64  // microseconds since the Unix epoch
	By       uint64 // the campaign in the way; 0 for none
}

// format is the version of parts. Fields can be added without a new one.
const format = 1

var errForeign = errors.New("it is not of this version of pacer, or damaged")

// encode packs the part.
func (p *part) encode() []byte {
	var b bytes.Buffer
	p.Format = format
	if err := gob.NewEncoder(&b).Encode(p); err != nil {
		panic(fmt.Sprintf("encode progress: %v", err)) // numbers and texts can always be encoded
	}
	return b.Bytes()
}

// decodePart reads the output of encode.
func decodePart(b []byte) (*part, error) {
	p := &part{}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(p); err != nil || p.Format != format {
		return nil, errForeign
	}
	return p, nil
}
