package mathequal

import "slices"

// bracket is one that is open where a bar stands.
type bracket struct {
	opening string
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
			case t.text == "|" && (i == 0 || !endsFactor(toks[i-1])):
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
		switch {
		case slices.Contains(openings, t.text):
			open = append(open, bracket{opening: t.text})
		case slices.Contains(closings, t.text) && len(open) > 1:
			open = open[:len(open)-1]
			if t.text == "rvert" && i+1 < len(toks) && beginsFactor(toks[i+1]) {
				open[len(open)-1].abutted = true
			}
		}
	}
	return nil
}

func endsFactor(t token) bool {
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
