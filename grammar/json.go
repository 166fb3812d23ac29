package grammar

import (
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

	// plainRune are the characters that a JSON string holds as they are.
	plainRune = everyRune.minus(0, 0x1F).without('"').without('\\')
	// jsonRune is one character of a JSON string, escaped or not.
	jsonRune   = jsonRuneRule().Expr()
	jsonString = Sequence(quote, Repeat(jsonRune, 0, -1), quote)
	plainRunes = Repeat(plainRune.expr(), 0, -1)

	jsonValue  = NewRule("a JSON value")
	jsonObject = Sequence(Text("{"), blank, Optional(list(Sequence(jsonString, colon, jsonValue.Expr()), 1, -1)), Text("}"))
	jsonArray  = Sequence(Text("["), blank, Optional(list(jsonValue.Expr(), 1, -1)), Text("]"))
)

func init() {
	jsonValue.Define(Choice(jsonObject, jsonArray, jsonString, jsonNumber, jsonBool, jsonNull))
}

// JSON is any JSON object, in the form that this package writes.
func JSON() Expr { return jsonObject }

func jsonRuneRule() *Rule {
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
	r.Define(Choice(plainRune.expr(), escape))
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
func quoted(s runeSet) Expr {
	plain := s.minus(0, 0x1F).without('"').without('\\')
	out := []Expr{plain.expr()}
	for _, r := range s {
		for c := r.low; c <= min(r.high, '\\'); c++ {
			if c < 0x20 || c == '"' || c == '\\' {
				written := literal(string(c))
				out = append(out, Text(written[1:len(written)-1]))
			}
		}
	}
	return Choice(out...)
}

// literal is a value in JSON, as a model writes it: < > & are not escaped.
func literal(v any) string {
	written, _ := wording.JSON(v) // of what was decoded
	return string(written)
}
