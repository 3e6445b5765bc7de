package smev

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"github.com/pacer/pacer/internal/delivery"
)

// SMEV knows a request by its MessageID: a UUID of version 1, whose time must not be two days old. A job may wait for
// longer before it is first sent, so its id is made when it is sent, and without a store: from the job and the time of
// its first record alone. That time is moved on by whole periods until it is less than one period old. So every attempt
// within a period has the same id, on whichever daemon, and also after a crash: SMEV tells those that it has already.
//
// A request in doubt (it was sent, and nothing is known of it) keeps the period of its first attempt, while SMEV takes
// that.
const (
	period = 24 * time.Hour
	// keptFor is for how long a MessageID is used that a request in doubt has, from the time in it. SMEV refuses it after
	// two days, by its own clock.
	keptFor = 47 * time.Hour
	// ahead is by how much the clock of a producer may be ahead of this one. Were it not allowed for, the id of a job would
	// change when its timestamp has come.
	ahead = 5 * time.Minute
)

// identity is what the MessageIDs of a job are made of.
type identity struct {
	hash [sha256.Size]byte
	base int64 // the time of period 0, in units of 100 ns since 1970
}

const (
	unitsPerSecond = 10_000_000 // of 100 ns
	unitsPerPeriod = int64(period/time.Second) * unitsPerSecond
	// gregorian is the time between the epoch of UUIDs (15 October 1582) and 1970, in units.
	gregorian = 0x01b21dd213814000
)

// identityOf returns the identity of a job, which is the same wherever and however often the job is read.
func identityOf(job *delivery.Job) (i identity) {
	h := sha256.New()
	for _, part := range []string{job.Campaign, job.ID, job.Scope(), job.Origin.String(), job.Origin.TopicID.String()} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = h.Write(length[:]) // hashing never fails, as documented
		_, _ = h.Write([]byte(part))
	}
	h.Sum(i.hash[:0])
	random := binary.BigEndian.Uint64(i.hash[16:])
	seconds := int64(job.Published) - int64(ahead/time.Second)
	if job.Published == 0 { // any will do that stays the same
		seconds = int64(random % uint64(period/time.Second))
	}
	i.base = seconds*unitsPerSecond + int64(random>>32%unitsPerSecond)
	return i
}

// periodAt returns the number of the period that a request has which is first sent at now.
func (i identity) periodAt(now time.Time) int64 {
	age := units(now) - i.base
	k := age / unitsPerPeriod
	if age%unitsPerPeriod < 0 {
		k--
	}
	return k
}

// usable reports whether SMEV still takes the MessageID of a period at now.
func (i identity) usable(k int64, now time.Time) bool {
	age := units(now) - i.base - k*unitsPerPeriod
	return age >= 0 && age < int64(keptFor/time.Second)*unitsPerSecond
}

// messageID returns the MessageID of a period, in lower case.
func (i identity) messageID(k int64) string {
	at := uint64(i.base + k*unitsPerPeriod + gregorian)
	var u uuid.UUID
	binary.BigEndian.PutUint32(u[0:], uint32(at))
	binary.BigEndian.PutUint16(u[4:], uint16(at>>32))
	binary.BigEndian.PutUint16(u[6:], uint16(at>>48)&0x0fff|0x1000) // version 1
	copy(u[8:], i.hash[:8])
	u[8] = u[8]&0x3f | 0x80 // the variant of RFC 9562
	u[10] |= 0x01           // a node that is no network card's
	return u.String()
}

func units(t time.Time) int64 {
	return t.Unix()*unitsPerSecond + int64(t.Nanosecond())/100
}
