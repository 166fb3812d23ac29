package web

import (
	"errors"
	"io"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// hidden are elements whose content is not text for a reader.
var hidden = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Svg: true, atom.Math: true, atom.Iframe: true,
	atom.Object: true, atom.Select: true, atom.Button: true, atom.Textarea: true,
}

// blocks begin and end a line.
var blocks = map[atom.Atom]bool{
	atom.Address: true, atom.Article: true, atom.Aside: true, atom.Blockquote: true, atom.Body: true, atom.Br: true, atom.Caption: true,
	atom.Dd: true, atom.Details: true, atom.Dialog: true, atom.Div: true, atom.Dl: true, atom.Dt: true, atom.Fieldset: true, atom.Figcaption: true,
	atom.Figure: true, atom.Footer: true, atom.Form: true, atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true,
	atom.Header: true, atom.Hr: true, atom.Li: true, atom.Main: true, atom.Nav: true, atom.Ol: true, atom.P: true, atom.Pre: true, atom.Section: true,
	atom.Summary: true, atom.Table: true, atom.Tr: true, atom.Ul: true,
}

// textOf is the title and the text of a page: a line for each block, "- " before items, " | " between cells, white space collapsed
// outside of <pre>. Any input has a text. It reads tokens, so that no nesting can exhaust the stack.
func textOf(page io.Reader) (title, text string, err error) {
	z := html.NewTokenizer(page)
	var w writer
	var heading strings.Builder
	inTitle, inPre := 0, 0
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			if !errors.Is(z.Err(), io.EOF) {
				err = z.Err()
			}
			return strings.Join(strings.Fields(heading.String()), " "), w.String(), err
		}
		if kind == html.TextToken {
			switch {
			case inTitle > 0:
				heading.Write(z.Text())
			case w.hidden == 0:
				w.text(string(z.Text()), inPre > 0)
			}
			continue
		}
		name, _ := z.TagName()
		tag := atom.Lookup(name)
		opens, closes := kind == html.StartTagToken, kind == html.EndTagToken
		switch {
		case hidden[tag]:
			w.hide(tag, opens, closes)
		case tag == atom.Title && w.hidden == 0:
			inTitle = toggle(inTitle, opens, closes)
		case w.hidden > 0:
		case tag == atom.Td || tag == atom.Th:
			if opens {
				w.cell()
			}
		case blocks[tag]:
			w.line()
			if tag == atom.Li && opens {
				w.mark("- ")
			}
			if tag == atom.Pre {
				inPre = toggle(inPre, opens, closes)
			}
		}
	}
}

func toggle(depth int, opens, closes bool) int {
	switch {
	case opens:
		return depth + 1
	case closes:
		return max(depth-1, 0)
	}
	return depth
}

// writer collects lines.
type writer struct {
	b       strings.Builder
	current strings.Builder // the line
	space   bool            // white space came since the last word
	bare    bool            // the line has nothing but marks
	cells   int             // of the line, begun so far
	hidden  int             // depth within hidden elements of one kind
	kind    atom.Atom
}

func (w *writer) hide(tag atom.Atom, opens, closes bool) {
	if w.hidden == 0 {
		w.kind = tag
	}
	if tag == w.kind {
		w.hidden = toggle(w.hidden, opens, closes)
	}
}

func (w *writer) text(s string, pre bool) {
	for _, r := range s {
		switch {
		case r == '\n' && pre:
			w.line()
		case unicode.IsSpace(r) && !pre:
			w.space = true
		case r == 0 || unicode.IsControl(r) && r != '\t':
		default:
			if w.space && w.current.Len() > 0 && !w.bare {
				w.current.WriteByte(' ')
			}
			w.space, w.bare = false, false
			w.current.WriteRune(r)
		}
	}
}

func (w *writer) mark(s string) {
	w.current.WriteString(s)
	w.bare, w.space = true, false
}

func (w *writer) cell() {
	w.cells++
	switch {
	case w.current.Len() > 0 && !w.bare:
		w.current.WriteString(" |")
		w.space = true
	case w.cells > 1: // the cells before it are empty
		w.mark("| ")
	}
}

func (w *writer) line() {
	s := strings.TrimRight(w.current.String(), " \t")
	if s != "" && !w.bare {
		w.b.WriteString(s)
		w.b.WriteByte('\n')
	}
	w.current.Reset()
	w.space, w.bare, w.cells = false, false, 0
}

func (w *writer) String() string {
	w.line()
	return strings.TrimRight(w.b.String(), "\n")
}
