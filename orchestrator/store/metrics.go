package store

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// metricNames keeps one copy of each metric's name while many steps are read.
type metricNames map[string]string

// decode reads the metrics of a step. What the store writes, an object of names and numbers without escapes or spaces, is read without
// encoding/json, which takes half a second for 10,000 steps; everything else goes to it, and so do all errors.
func (n metricNames) decode(body []byte) (map[string]float64, error) {
	if m, ok := n.plain(body); ok {
		return m, nil
	}
	m := map[string]float64{}
	err := json.Unmarshal(body, &m)
	return m, err
}

func (n metricNames) plain(body []byte) (map[string]float64, bool) {
	if len(body) < 2 || body[0] != '{' || body[len(body)-1] != '}' {
		return nil, false
	}
	m := make(map[string]float64, len(n))
	for rest := body[1:]; ; {
		if len(rest) < 2 || rest[0] != '"' {
			return nil, false
		}
		end := bytes.IndexByte(rest[1:], '"') + 1
		if end < 1 || end+1 >= len(rest) || rest[end+1] != ':' || !bare(rest[1:end]) {
			return nil, false
		}
		name, ok := n[string(rest[1:end])]
		if !ok {
			name = string(rest[1:end])
			n[name] = name
		}
		rest = rest[end+2:]
		stop := bytes.IndexAny(rest, ",}")
		if stop < 1 || !number(rest[:stop]) {
			return nil, false
		}
		v, err := strconv.ParseFloat(string(rest[:stop]), 64)
		if err != nil {
			return nil, false
		}
		m[name] = v
		if rest[stop] == '}' {
			return m, stop == len(rest)-1
		}
		rest = rest[stop+1:]
	}
}

// bare says that a text of JSON stands for itself.
func bare(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// number says that a text is one of JSON's numbers.
func number(text []byte) bool {
	digits := func() bool {
		n := 0
		for n < len(text) && text[n] >= '0' && text[n] <= '9' {
			n++
		}
		text = text[n:]
		return n > 0
	}
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	if len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' || !digits() {
		return false
	}
	if len(text) > 0 && text[0] == '.' {
		if text = text[1:]; !digits() {
			return false
		}
	}
	if len(text) > 0 && (text[0] == 'e' || text[0] == 'E') {
		if text = text[1:]; len(text) > 0 && (text[0] == '+' || text[0] == '-') {
			text = text[1:]
		}
		if !digits() {
			return false
		}
	}
	return len(text) == 0
}
