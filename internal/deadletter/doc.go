// Package deadletter lists, reads and replays dead letters. A dead letter is a job that could not be delivered. It is
// a record of a log and cannot be marked, so replayed letters are noted in a topic of their own, by partition and
// offset, after each acknowledged batch. A letter that was written twice is read once: the second has the same origin,
// attempt and hops.
package deadletter
