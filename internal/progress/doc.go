// Package progress estimates how much of every campaign is still to come: its backlog, when the backlog will have been
// sent, and how many jobs are late although they could be sent.
//
// Every daemon counts its part: the jobs that are not settled in its partitions of ingress, lanes and timers, and the units it has sent. Once a second it
// stores its part in an exchange that all daemons share (Redis). One of them, the leader, reads all parts and stores their sum, which the
// others read. The leader alone computes figures and shows them. The cost grows with the number of daemons, and with that of the
// campaigns that have jobs.
//
// Lanes move between daemons, so the count of a lane is that of the daemon that read it last: among the parts that
// contain the lane, the one of the newest generation of the consumer group. The count of a killed daemon holds until
// another daemon has taken over its lanes, which begins with the count of the last commit. Jobs of its ingress and timers
// count as long as the daemon stores parts; the next owner of a partition counts it anew.
//
// Each daemon also tells what it does, for those who look at the fleet: its partitions, how late it uses slots, what its sinks answer and how
// long that takes. Such reports are of the last minute, and bounded: a daemon tells of its first sinks only, and of a histogram the cells
// that have counted something. The sum has a report of each daemon, and of each sink what all daemons have counted.
//
// Settled jobs are added up in the catalog every few seconds. A killed daemon loses the last of these seconds. If that keeps a campaign from
// being done, the leader counts in the log what was published (recount.go). A job that is sent twice counts twice.
package progress
