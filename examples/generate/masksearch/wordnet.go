package main

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// passage is one entry of WordNet's nouns as a reader would see it: a name, a colon and what WordNet says of it.
type passage struct {
	ID   string `json:"id"`   // n and the entry's offset in data.noun
	Text string `json:"text"` // Harare: the capital and largest city of Zimbabwe
	name string // the part before the colon
}

// The sizes of a passage, in words. Below the lower one hardly anything is left to search with, above the upper one a small model's
// prompt grows for nothing.
const (
	minWords = 8
	maxWords = 40
)

// nounPerson is the number of the lexicographer's file of people, whose first name in an entry is often the surname alone.
const nounPerson = 18

// readWordNet returns the passages of data.noun (the format is described in wndb(5WN)): entries of minWords to maxWords with a salient
// span, in the order of the file, without the usage examples that follow a definition.
func readWordNet(data []byte) ([]passage, error) {
	var out []passage
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(line, "  ") || line == "" { // the licence
			continue
		}
		p, err := parseEntry(line)
		if err != nil {
			return nil, fmt.Errorf("generate: data.noun line %d: %w", n, err)
		}
		if count := len(strings.Fields(p.Text)); count < minWords || count > maxWords || seen[p.Text] || !readable(p) {
			continue
		}
		if len(spans(p)) > 0 {
			seen[p.Text] = true
			out = append(out, p)
		}
	}
	return out, lines.Err()
}

// parseEntry reads "offset lex_filenum ss_type w_cnt word lex_id … p_cnt pointers… | gloss".
func parseEntry(line string) (passage, error) {
	head, gloss, ok := strings.Cut(line, " | ")
	fields := strings.Fields(head)
	if !ok || len(fields) < 6 {
		return passage{}, fmt.Errorf("an entry has an offset, a file, a type, words and a gloss after |")
	}
	file, err := strconv.Atoi(fields[1])
	if err != nil {
		return passage{}, fmt.Errorf("the number of the lexicographer's file: %w", err)
	}
	count, err := strconv.ParseInt(fields[3], 16, 32)
	if err != nil || count < 1 || 4+2*int(count) > len(fields) {
		return passage{}, fmt.Errorf("the number of words %q is wrong", fields[3])
	}
	name := ""
	for i := range int(count) {
		word := strings.ReplaceAll(fields[4+2*i], "_", " ")
		if i == 0 || file == nounPerson && capital(word) && len(word) > len(name) {
			name = word
		}
	}
	definition, _, _ := strings.Cut(gloss, `"`)
	definition = strings.Trim(definition, " ;")
	return passage{ID: "n" + fields[0], Text: name + ": " + definition, name: name}, nil
}

func capital(word string) bool {
	r, _ := utf8.DecodeRuneInString(word)
	return unicode.IsUpper(r)
}

// readable reports whether a passage is one line of text without the characters of marks and tags.
func readable(p passage) bool {
	return utf8.ValidString(p.Text) && !strings.ContainsAny(p.Text, "[]<>\"\t\n") && !strings.Contains(p.Text, "  ")
}
