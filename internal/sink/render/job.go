package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Job is what a template sees of a job and of the attempt to deliver it: the exported fields and methods. It is for one
// attempt and one goroutine.
type Job struct {
	ID          string
	Campaign    string
	Weight      int64
	Attempt     int       // the number of this attempt, from 1
	Time        time.Time // of this attempt, in UTC
	ContentType string
	TraceParent string

	job     *delivery.Job
	wait    time.Duration // for those that decode at the same time
	decoded bool
	value   any
	failed  error
}

// NewJob returns what a template sees of the job at an attempt that is made at now.
func NewJob(j *delivery.Job, now time.Time) *Job {
	return &Job{
		ID: j.ID, Campaign: j.Campaign, Weight: j.Weight, Attempt: j.Attempt + 1, Time: now.UTC(),
		ContentType: j.ContentType, TraceParent: j.TraceParent, job: j, wait: longWait,
	}
}

// Bounds on a payload that NewQuick decodes. The worst one takes 7 ms.
const (
	maxQuick  = 256 << 10 // bytes
	maxValues = 8192      // commas and opening brackets: about as many as there are values
)

// NewQuick is NewJob for the readers of jobs, who must not wait: JSON waits for nothing, and fails for a payload that takes long to decode.
func NewQuick(j *delivery.Job) *Job {
	q, p := NewJob(j, time.Now()), j.Payload
	q.wait = 0
	if len(p) > maxQuick || bytes.Count(p, []byte{','})+bytes.Count(p, []byte{'['})+bytes.Count(p, []byte{'{'}) > maxValues {
		q.decoded, q.failed = true, errSlow
	}
	return q
}

// BodyLimit bounds a body that a template makes of a job, in bytes.
func BodyLimit(j *delivery.Job) int { return 64<<10 + 4*len(j.Payload) }

// Payload returns the job's payload.
func (j *Job) Payload() string { return string(j.job.Payload) }

// Key returns the key of the job's record.
func (j *Job) Key() string { return string(j.job.Key) }

// Header returns the value of a header of the job's record that is not pacer's own, "" if there is none. The last one counts.
func (j *Job) Header(name string) string {
	for i := len(j.job.Headers) - 1; i >= 0; i-- {
		if j.job.Headers[i].Key == name {
			return string(j.job.Headers[i].Value)
		}
	}
	return ""
}

// long is held while a long payload is decoded, which takes up to 0.2 s of a processor for each MiB: the scheduler needs a processor, too.
var long = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

const (
	longPayload = 16 << 10               // bytes
	longWait    = 200 * time.Millisecond // then it is decoded all the same: the call has a timeout
)

// JSON returns the payload as JSON, decoded when it is first asked for. Numbers keep their digits.
func (j *Job) JSON() (any, error) {
	if !j.decoded {
		j.decoded = true
		if len(j.job.Payload) > longPayload {
			select {
			case long <- struct{}{}:
				defer func() { <-long }()
			case <-time.After(j.wait):
			}
		}
		j.value, j.failed = decode(j.job.Payload)
	}
	return j.value, j.failed
}

// Vars returns what the steps of the request have found out so far, decoded from JSON; empty for any other request. Numbers
// keep their digits.
func (j *Job) Vars() (any, error) {
	if j.job.State == nil || len(j.job.State.Vars) == 0 {
		return map[string]any{}, nil
	}
	v, err := decode(j.job.State.Vars)
	if err != nil {
		return nil, errors.New("what the steps have found out is not JSON")
	}
	return v, nil
}

var (
	errJSON = errors.New("the payload is not JSON")
	errSlow = errors.New("the payload takes long to decode")
)

func decode(payload []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, errJSON // without the error, which quotes the payload
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: something follows it", errJSON)
	}
	return value, nil
}
