package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxAnswers bounds the answers of a count of letters, and maxAnswer the text of one.
const maxAnswers, maxAnswer = 10, 40

// count counts an answer. The list has all while letters are read; trim keeps those that are most frequent.
func (c *LetterCount) count(destination, detail string) {
	answer := answerOf(detail)
	i := slices.IndexFunc(c.Answers, func(a Answered) bool { return a.Destination == destination && a.Answer == answer })
	if i < 0 {
		if i = len(c.Answers); i >= 10*maxAnswers {
			return
		}
		c.Answers = append(c.Answers, Answered{Destination: destination, Answer: answer})
	}
	c.Answers[i].Letters++
}

func (c *LetterCount) trim() {
	slices.SortStableFunc(c.Answers, func(a, b Answered) int { return cmp.Compare(b.Letters, a.Letters) })
	c.Answers = slices.Clip(c.Answers[:min(len(c.Answers), maxAnswers)])
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
