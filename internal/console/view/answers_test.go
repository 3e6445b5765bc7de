package view

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestAnswersAddUp: however many destinations and answers there are, the answers of a count are few, and add up to its letters.
func TestAnswersAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		destinations, answers := rapid.IntRange(0, 300).Draw(t, "destinations"), rapid.SampledFrom([]int{1, 3, 40, 300}).Draw(t, "answers")
		c, letters, gone := LetterCount{}, rapid.IntRange(1, 2000).Draw(t, "letters"), 0
		for n := range letters {
			destination, answer := "", n*7919%answers
			if d := n * 104729 % (destinations + 1); d > 0 {
				destination = fmt.Sprintf("d%d", d)
			}
			if answer == 0 {
				gone++
			}
			c.count(destination, fmt.Sprintf("HTTP %d from there", 400+answer))
		}
		c.trim()
		sums := map[string]int{}
		for _, a := range c.Answers {
			sums[""] += a.Letters
			sums[a.Answer] += a.Letters
		}
		if sums[""] != letters || len(c.Answers) > 2*maxAnswers+1 {
			t.Fatalf("%d answers of %d letters: %+v", len(c.Answers), letters, c.Answers)
		}
		if answers <= maxAnswers && sums["400"] != gone {
			t.Fatalf("400 × %d, want %d: %+v", sums["400"], gone, c.Answers)
		}
	})
}
