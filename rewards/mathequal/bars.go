package mathequal

import "slices"

// bracket is one that is open where a bar stands.
type bracket struct {
	opening string
	at      int  // its token
	divided bool // a set, whose condition has begun
	abutted bool // what was between bars is followed by a factor without a sign
}

var (
	openings = []string{"(", "[", "{", `\{`, "lfloor", "lceil", "begin", "lvert"}
	closings = []string{")", "]", "}", `\}`, "rfloor", "rceil", "end", "rvert"}
)

// directBars tells bars that open an absolute value from those that close one, as lvert and rvert; those before a set's condition stay.
// |x|y|z|, which may be |x|·y·|z| and |x·|y|·z|, is an error.
func directBars(toks []token) error {
	open := []bracket{{}}
	for i := range toks {
		t, inner := &toks[i], &open[len(open)-1]
		if t.kind != tokOp {
			continue
		}
		if t.text == "|" || t.text == ":" {
			switch {
			case t.text == "|" && (i == 0 || !endsFactor(toks[:i])):
				t.text = "lvert"
			case t.text == "|" && inner.opening == "lvert":
				t.text = "rvert"
			case inner.opening == `\{` && !inner.divided:
				inner.divided = true
			case t.text == "|" && inner.abutted:
				return errParse
			case t.text == "|":
				t.text = "lvert"
			}
		}
		if n := len(open); t.text == `\}` && inner.opening == "lvert" && n > 2 && open[n-2].opening == `\{` && !open[n-2].divided {
			toks[inner.at].text = "|" // \left| with \right. at its end
			open = open[:n-1]
		}
		switch {
		case slices.Contains(openings, t.text):
			open = append(open, bracket{opening: t.text, at: i})
		case slices.Contains(closings, t.text) && len(open) > 1:
			open = open[:len(open)-1]
			if t.text == "rvert" && i+1 < len(toks) && beginsFactor(toks[i+1]) {
				open[len(open)-1].abutted = true
			}
		}
	}
	return nil
}

// endsFactor tells whether tokens end with a factor. The base or exponent of a function, whose argument follows, is none.
func endsFactor(toks []token) bool {
	t := toks[len(toks)-1]
	begin := len(toks) - 1
	for depth := 0; begin > 0; begin-- { // to the brace that opens
		switch toks[begin].text {
		case "}":
			depth++
		case "{":
			depth--
		}
		if depth == 0 {
			break
		}
	}
	if begin > 1 && (toks[begin-1].text == "_" || toks[begin-1].text == "^") && toks[begin-2].kind == tokFunc {
		return false
	}
	switch t.kind {
	case tokOp:
		return slices.Contains(closings, t.text) || slices.Contains([]string{"!", "%", "'", "degree", "emptyset"}, t.text)
	case tokFunc:
		return false
	}
	return true
}

// beginsFactor leaves out bars, which a bar before them closes: |x||y|.
func beginsFactor(t token) bool {
	return t.kind != tokOp || slices.Contains([]string{"(", "[", "{", "frac", "sqrt", "binom", "lfloor", "lceil"}, t.text)
}
