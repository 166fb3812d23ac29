// Package exposition owns Prometheus's text format (version 0.0.4), in which programs are asked for their figures. It does not
// say which figures there are.
package exposition

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// Text is a page of figures. The samples of a family follow it.
type Text struct{ b bytes.Buffer }

// Family begins a family of samples. kind is counter or gauge; help is one line, in words.
func (t *Text) Family(name, kind, help string) {
	t.b.WriteString("# HELP " + name + " " + strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help) + "\n# TYPE " + name + " " + kind + "\n")
}

// Sample adds a value. labels are names and values in turn.
func (t *Text) Sample(name string, value float64, labels ...string) {
	t.b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		t.b.WriteByte("{,"[min(i, 1)])
		t.b.WriteString(labels[i] + `="` + strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")) + `"`)
	}
	if len(labels) > 1 {
		t.b.WriteByte('}')
	}
	t.b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// Name makes a name that samples may have: what is no letter, digit or underscore becomes an underscore.
func Name(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, text)
}

// ServeHTTP answers with the page.
func (t *Text) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(t.b.Bytes()) // a reader that went away asks again
}

// String is the page.
func (t *Text) String() string { return t.b.String() }
