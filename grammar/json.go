package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// The parts of JSON. Blanks between them are bounded, so that a model cannot write blanks for ever: none or one, or a line break and
// at most 32 blanks of indentation. Numbers have at most 20 digits in a row, and two in the exponent, so that every reader can hold them.
var (
	// blank stands where pretty-printed JSON has a line break.
	blank = Choice(Expr{}, Text(" "), Sequence(Text("\n"), Repeat(Bytes(' ', ' '), 0, 32)))
	colon = Sequence(Text(":"), Optional(Text(" ")))
	comma = Sequence(Text(","), blank)
	quote = Text(`"`)

	digit  = Bytes('0', '9')
	digits = Repeat(digit, 1, 20)
	whole  = Choice(Text("0"), Sequence(Bytes('1', '9'), Repeat(digit, 0, 19)))
	// jsonInteger is an integer without an exponent.
	jsonInteger = Sequence(Optional(Text("-")), whole)
	fraction    = Sequence(Text("."), digits)
	jsonNumber  = Sequence(jsonInteger, Optional(fraction), Optional(Sequence(Choice(Text("e"), Text("E")), Optional(Choice(Text("+"), Text("-"))), Repeat(digit, 1, 2))))

	jsonBool = Choice(Text("true"), Text("false"))
	jsonNull = Text("null")
)

// writing is how the strings of JSON are written, keys among them.
type writing struct {
	escaped rune    // never stands as it is; ASCII, and in strings alone
	plain   runeSet // the characters that a string holds as they are
	letter  Expr    // one character of a string, escaped or not
	plains  Expr    // any text of plain
	any     Expr    // one character in its shortest form
	value   Expr
	object  Expr
}

var (
	// asIs escapes what JSON asks for.
	asIs = newWriting(0)
	// betweenTags escapes the beginning of a tag too.
	betweenTags = newWriting('<')
)

func newWriting(escaped rune) *writing {
	w := &writing{escaped: escaped, plain: everyRune.minus(0, 0x1F).without('"').without('\\').without(escaped)}
	w.letter = letterRule(w.plain).Expr()
	w.plains = Repeat(w.plain.expr(), 0, -1)
	w.any = w.quoted(everyRune)
	value := NewRule("a JSON value")
	w.value = value.Expr()
	text := Sequence(quote, Repeat(w.letter, 0, -1), quote)
	w.object = Sequence(Text("{"), blank, Optional(list(Sequence(text, colon, w.value), 1, -1)), Text("}"))
	array := Sequence(Text("["), blank, Optional(list(w.value, 1, -1)), Text("]"))
	value.Define(Choice(w.object, array, text, jsonNumber, jsonBool, jsonNull))
	return w
}

// JSON is any JSON object, in the form that this package writes.
func JSON() Expr { return asIs.object }

func letterRule(plain runeSet) *Rule {
	hex := Choice(digit, Bytes('a', 'f'), Bytes('A', 'F'))
	no := Choice(digit, Bytes('a', 'c'), Bytes('A', 'C'), Bytes('e', 'f'), Bytes('E', 'F')) // a first digit of no surrogate
	d := Choice(Text("d"), Text("D"))
	code := Choice(
		Sequence(no, hex, hex, hex),
		Sequence(d, Bytes('0', '7'), hex, hex),
		Sequence(d, Choice(Bytes('8', '9'), Bytes('a', 'b'), Bytes('A', 'B')), hex, hex, Text(`\u`), d, Choice(Bytes('c', 'f'), Bytes('C', 'F')), hex, hex), // a pair
	)
	var single []Expr
	for _, c := range `"\/bfnrt` {
		single = append(single, Text(string(c)))
	}
	escape := Sequence(Text(`\`), Choice(append(single, Sequence(Text("u"), code))...))
	r := NewRule("a character of a JSON string")
	r.Define(Choice(plain.expr(), escape))
	return r
}

// list is min to max items with commas between them and a blank behind the last; max below 0 is no bound. min is at least 1.
func list(item Expr, least, most int) Expr {
	more := -1
	if most >= 0 {
		more = most - 1
	}
	return Sequence(item, Repeat(Sequence(comma, item), least-1, more), blank)
}

// quoted is the characters as one character of a JSON string, in the shortest form.
func (w *writing) quoted(s runeSet) Expr {
	plain := s.minus(0, 0x1F).without('"').without('\\').without(w.escaped)
	out := []Expr{plain.expr()}
	for _, r := range s {
		for c := r.low; c <= min(r.high, '\\'); c++ {
			if c < 0x20 || c == '"' || c == '\\' || c == w.escaped {
				written := w.literal(string(c))
				out = append(out, Text(written[1:len(written)-1]))
			}
		}
	}
	return Choice(out...)
}

// literal is a value in JSON, as a model writes it: of < > & none is escaped but w's own.
func (w *writing) literal(v any) string {
	written, _ := wording.JSON(v) // of what was decoded
	return w.escape(string(written))
}

// escape is a JSON text without the character that never stands as it is.
func (w *writing) escape(text string) string {
	return strings.ReplaceAll(text, string(w.escaped), fmt.Sprintf(`\u%04x`, w.escaped))
}

// compact is the value without blanks and without escapes of what may stand as it is.
func (w *writing) compact(raw json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	if s, ok := v.(string); ok {
		return w.literal(s), nil
	}
	var b bytes.Buffer
	err := json.Compact(&b, raw) // keeps the order of keys
	return w.escape(b.String()), err
}

// keyBut is any key in its shortest form but the names.
func (w *writing) keyBut(names []string) Expr {
	letters := make([][]rune, len(names))
	for i, name := range names {
		letters[i] = []rune(name)
	}
	return Sequence(quote, w.but(letters))
}

// but is the rest of a key and its closing quote, which is none of the rests of the names.
func (w *writing) but(names [][]rune) Expr {
	behind := map[rune][][]rune{}
	var order []rune
	whole := false
	for _, name := range names {
		if len(name) == 0 {
			whole = true
			continue
		}
		if behind[name[0]] == nil {
			order = append(order, name[0])
		}
		behind[name[0]] = append(behind[name[0]], name[1:])
	}
	var out []Expr
	if !whole {
		out = append(out, quote)
	}
	free := w.plain
	for _, c := range order {
		if w.plain.has(c) {
			free = free.without(c)
			out = append(out, Sequence(Text(string(c)), w.but(behind[c])))
		}
	}
	return Choice(append(out, Sequence(free.expr(), w.plains, quote))...)
}
