package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// task is one line of train.jsonl and eval.jsonl: a passage with one to four of its spans masked.
type task struct {
	ID       string   `json:"id"`
	Question string   `json:"question"` // the passage with [1], [2] … in place of the masked texts
	Answer   string   `json:"answer"`   // the masked texts, joined by "; "
	Answers  []string `json:"answers"`
	Kind     string   `json:"kind"` // that of the span, or several
	Masks    int      `json:"masks"`
	Passage  string   `json:"passage"` // its id
	SHA256   string   `json:"sha256"`  // of the passage's text, the first 16 hexadecimal digits
}

const (
	kindSeveral = "several"
	maxMasks    = 4
)

func mark(i int) string { return "[" + strconv.Itoa(i+1) + "]" }

// cut puts marks in place of the spans, which are in order and do not overlap.
func cut(p passage, masked []span) (question string, answers []string) {
	var b strings.Builder
	from := 0
	for i, s := range masked {
		b.WriteString(p.Text[from:s.start])
		b.WriteString(mark(i))
		answers = append(answers, p.Text[s.start:s.end])
		from = s.end
	}
	b.WriteString(p.Text[from:])
	return b.String(), answers
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// corpus counts what the rules of masking need to know of all passages.
type corpus struct {
	passages []passage
	spans    [][]span
	often    map[string]int // in how many passages a span's text occurs as a span, in lower case
}

func newCorpus(passages []passage) *corpus {
	c := &corpus{passages: passages, often: map[string]int{}}
	for _, p := range passages {
		found := spans(p)
		c.spans = append(c.spans, found)
		in := map[string]bool{}
		for _, s := range found {
			in[strings.ToLower(p.Text[s.start:s.end])] = true
		}
		for text := range in {
			c.often[text]++
		}
	}
	return c
}

// mostOften is the largest number of passages in which a masked text may occur: what is everywhere can be guessed.
const mostOften = 3

// taskWords is the length of the longest passage, in words, that n masks may be in: short where short ones are enough. The longer ones
// are there to be searched.
func taskWords(n int) int { return 24 + 8*max(0, n-2) }

// minVisible is the number of words that must be left to search with.
const minVisible = 6

// hidden reports whether the masked texts cannot be read off the visible text: none of them is frequent in the corpus, none has a word or
// a number that is visible, also within a word, or begins like a visible word or another mask's, and enough is left to search with.
func (c *corpus) hidden(question string, answers []string) bool {
	for i := range answers {
		question = strings.ReplaceAll(question, mark(i), " ")
	}
	low := strings.ToLower(question)
	visible := words(low)
	if len(visible) < minVisible {
		return false
	}
	taken := map[string]bool{}
	for _, w := range visible {
		taken[stem(w)] = true
	}
	for _, a := range answers {
		if c.often[strings.ToLower(a)] > mostOften {
			return false
		}
		own := words(a)
		if slices.ContainsFunc(own, func(w string) bool { return !small[w] && (taken[stem(w)] || len(w) > 2 && strings.Contains(low, w)) }) {
			return false
		}
		for _, w := range own {
			taken[stem(w)] = true
		}
	}
	return true
}

// small are words of names that say nothing.
var small = map[string]bool{"of": true, "the": true, "de": true, "la": true, "von": true, "van": true, "del": true, "di": true, "da": true}

var errNoMask = errors.New("no mask")

// draw masks n spans of passage at, without replacement. errNoMask: it has no n spans that are hidden.
func (c *corpus) draw(r *rand.Rand, at, n int) (task, error) {
	p, found := c.passages[at], c.spans[at]
	if len(found) < n || len(strings.Fields(p.Text)) > taskWords(n) {
		return task{}, errNoMask
	}
	order := r.Perm(len(found))[:n]
	slices.Sort(order)
	masked := make([]span, n)
	for i, k := range order {
		masked[i] = found[k]
	}
	question, answers := cut(p, masked)
	if !c.hidden(question, answers) {
		return task{}, errNoMask
	}
	kind := kindSeveral
	if n == 1 {
		kind = masked[0].kind
	}
	return task{
		Question: question, Answer: strings.Join(answers, "; "), Answers: answers, Kind: kind, Masks: n, Passage: p.ID, SHA256: digest(p.Text),
	}, nil
}
