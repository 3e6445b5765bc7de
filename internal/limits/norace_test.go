//go:build !race

package limits

// raced tells that the race detector looks on.
const raced = false
