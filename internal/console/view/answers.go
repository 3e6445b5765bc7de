package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxAnswers bounds the answers of a count of letters, and as many again without their destinations; maxAnswer bounds the text of one.
const maxAnswers, maxAnswer = 10, 40

// otherAnswers stands for answers that are not among the most frequent.
const otherAnswers = "others"

// add counts letters by their answer. Behind most answers it counts them without their destinations, and behind twice as many as others, so
// that the sum is always that of all letters.
func (c *LetterCount) add(most int, destination, answer string, letters int) {
	for _, as := range []Answered{{Destination: destination, Answer: answer}, {Answer: answer}, {Answer: otherAnswers}} {
		i := slices.IndexFunc(c.Answers, func(a Answered) bool { return a.Destination == as.Destination && a.Answer == as.Answer })
		if i < 0 && (len(c.Answers) < most || as.Destination == "" && len(c.Answers) < 2*most || as.Answer == otherAnswers) {
			i, c.Answers = len(c.Answers), append(c.Answers, as)
		}
		if i >= 0 {
			c.Answers[i].Letters += letters
			return
		}
	}
}

// count counts an answer. The list has many while letters are read; trim keeps those that are most frequent.
func (c *LetterCount) count(destination, detail string) {
	c.add(10*maxAnswers, destination, answerOf(detail), 1)
}

func (c *LetterCount) trim() {
	frequent := func(a, b Answered) int { return cmp.Compare(b.Letters, a.Letters) }
	all := c.Answers
	slices.SortStableFunc(all, frequent)
	c.Answers = nil
	for _, a := range all {
		c.add(maxAnswers, a.Destination, a.Answer, a.Letters)
	}
	slices.SortStableFunc(c.Answers, frequent)
}

// answerOf is the status of a detail such as "HTTP 404 not found: no such path", or else its beginning.
func answerOf(detail string) string {
	if rest, ok := strings.CutPrefix(detail, "HTTP "); ok {
		status, _, _ := strings.Cut(rest, " ")
		return strings.TrimSuffix(status, ":")
	}
	if len(detail) <= maxAnswer {
		return cmp.Or(detail, "no answer")
	}
	end := maxAnswer
	for !utf8.RuneStart(detail[end]) {
		end--
	}
	return detail[:end] + "…"
}

// Tally says which answers there are: 404 × 100, 500 × 3.
func Tally(counts []LetterCount) string {
	var sums []Answered
	for _, c := range counts {
		for _, a := range c.Answers {
			i := slices.IndexFunc(sums, func(s Answered) bool { return s.Answer == a.Answer })
			if i < 0 {
				i, sums = len(sums), append(sums, Answered{Answer: a.Answer})
			}
			sums[i].Letters += a.Letters
		}
	}
	slices.SortStableFunc(sums, func(a, b Answered) int { return cmp.Compare(b.Letters, a.Letters) })
	words := make([]string, 0, 3)
	for _, s := range sums[:min(len(sums), cap(words))] {
		words = append(words, fmt.Sprintf("%s × %d", s.Answer, s.Letters))
	}
	return strings.Join(words, ", ")
}

// Tally says which answers the letters have.
func (c LetterCount) Tally() string { return Tally([]LetterCount{c}) }
