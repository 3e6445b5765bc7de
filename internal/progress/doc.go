// Package progress says how much of every campaign is still to come: its backlog, when that will have been sent, and how
// many jobs are late although they could be sent.
//
// Every daemon counts its part: what waits in the lanes it reads and in its memory, and what it has sent. Once a second
// it leaves its part on a board that all daemons share (Redis) and takes the others' with it. Each adds the parts up by
// itself, so that all show the same.
//
// A lane changes hands, so its count is that of the daemon that read it last: among the parts that name a lane, the one
// of the newest generation of the consumer group counts. The count of a daemon that was killed stands until another has
// taken its lanes over; that one begins with the count of the last commit. What a daemon held in memory counts while it
// leaves parts.
//
// What was settled is added up in the catalog every few seconds. A daemon that is killed takes the last of these seconds
// with it, and a job that is sent twice counts twice: these are counts for people, not a ledger.
package progress
