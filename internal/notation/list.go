package notation

import (
	"strconv"
	"strings"
)

// List formats numbers: 7, 8, 9.
func List(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}
