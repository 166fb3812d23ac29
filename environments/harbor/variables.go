package harbor

import (
	"fmt"
	"regexp"
	"strings"
)

// word is a word of a Dockerfile that is read as Docker does ("Environment replacement" of its reference): variables have their values, quotes and
// backslashes are gone. In single quotes, and behind a backslash, a $ is a $.
type word struct {
	rest   string
	lookup func(name string) (value string, set bool)
}

var (
	variable = regexp.MustCompile(`^(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?!$-])`)
	braced   = regexp.MustCompile(`^\{([A-Za-z_][A-Za-z0-9_]*)(\}|:?[-+])`)
)

// until reads up to a character, and to the end of the word where there is none.
func (w *word) until(end string) (string, error) {
	var out strings.Builder
	quoted := end == `"`
	for w.rest != "" {
		c := w.rest[:1]
		w.rest = w.rest[1:]
		switch {
		case c == end:
			return out.String(), nil
		case c == `\` && w.rest != "" && (!quoted || strings.ContainsAny(w.rest[:1], `"$\`)):
			out.WriteString(w.rest[:1])
			w.rest = w.rest[1:]
		case c == `'` && !quoted:
			text, rest, closed := strings.Cut(w.rest, `'`)
			if !closed {
				return "", fmt.Errorf("a ' is not closed")
			}
			out.WriteString(text)
			w.rest = rest
		case c == `"` || c == `$`:
			read := w.value
			if c == `"` {
				read = func() (string, error) { return w.until(c) }
			}
			text, err := read()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		default:
			out.WriteString(c)
		}
	}
	if end != "" {
		return "", fmt.Errorf("a %s is missing", end)
	}
	return out.String(), nil
}

// value reads what stands behind a $.
func (w *word) value() (string, error) {
	if !strings.HasPrefix(w.rest, "{") {
		name := variable.FindString(w.rest)
		if name == "" {
			return "$", nil
		}
		w.rest = w.rest[len(name):]
		value, _ := w.lookup(name)
		return value, nil
	}
	m := braced.FindStringSubmatch(w.rest)
	if m == nil {
		return "", fmt.Errorf("of ${…} only ${NAME}, ${NAME:-word}, ${NAME-word}, ${NAME:+word} and ${NAME+word} are supported")
	}
	w.rest = w.rest[len(m[0]):]
	value, set := w.lookup(m[1])
	if m[2] == "}" {
		return value, nil
	}
	other, err := w.until("}")
	if strings.HasPrefix(m[2], ":") {
		set = value != ""
	}
	switch wanted := strings.HasSuffix(m[2], "+"); {
	case set == wanted:
		return other, err
	case wanted:
		return "", err
	default:
		return value, err
	}
}
