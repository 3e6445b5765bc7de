package pacer

import "github.com/pacer/pacer/internal/delivery"

// slotHeap orders queues by the local time of their first slot, askHeap by the local time of their next ask. Both
// are for container/heap; each keeps a queue's position in the queue.
type slotHeap []*queue

func (h slotHeap) Len() int { return len(h) }
func (h slotHeap) Less(i, j int) bool {
	return h[i].slotAt < h[j].slotAt || h[i].slotAt == h[j].slotAt && h[i].id < h[j].id
}
func (h slotHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slotIndex, h[j].slotIndex = i, j
}
func (h *slotHeap) Push(x any) {
	q := x.(*queue)
	q.slotIndex = len(*h)
	*h = append(*h, q)
}
func (h *slotHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.slotIndex = -1
	return q
}

type askHeap []*queue

func (h askHeap) Len() int           { return len(h) }
func (h askHeap) Less(i, j int) bool { return h[i].askAt < h[j].askAt }
func (h askHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].askIndex, h[j].askIndex = i, j
}
func (h *askHeap) Push(x any) {
	q := x.(*queue)
	q.askIndex = len(*h)
	*h = append(*h, q)
}
func (h *askHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	q.askIndex = -1
	return q
}

// delayed is a job that waits in memory until a local time: a short back-off, or a not-before that is near.
type delayed struct {
	job *delivery.Job
	at  int64
}

type delayHeap []delayed

func (h delayHeap) Len() int           { return len(h) }
func (h delayHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h delayHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(x any)        { *h = append(*h, x.(delayed)) }
func (h *delayHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = delayed{}
	*h = old[:len(old)-1]
	return d
}
