package mathequal

import "math/big"

type name struct {
	kind tokenKind
	text string
}

// names are runs of letters that are one thing; "" says nothing and is left out.
var names = map[string]name{
	"pi": {tokSymbol, "pi"}, "infinity": {tokSymbol, "infty"}, "inf": {tokSymbol, "infty"}, "sqrt": {tokOp, "sqrt"},
	"theta": {tokSymbol, "theta"}, "alpha": {tokSymbol, "alpha"}, "beta": {tokSymbol, "beta"}, "gamma": {tokSymbol, "gamma"}, "lambda": {tokSymbol, "lambda"},
	"sin": {tokFunc, "sin"}, "cos": {tokFunc, "cos"}, "tan": {tokFunc, "tan"}, "cot": {tokFunc, "cot"}, "sec": {tokFunc, "sec"}, "csc": {tokFunc, "csc"},
	"arcsin": {tokFunc, "arcsin"}, "arccos": {tokFunc, "arccos"}, "arctan": {tokFunc, "arctan"},
	"asin": {tokFunc, "arcsin"}, "acos": {tokFunc, "arccos"}, "atan": {tokFunc, "arctan"},
	"sinh": {tokFunc, "sinh"}, "cosh": {tokFunc, "cosh"}, "tanh": {tokFunc, "tanh"},
	"ln": {tokFunc, "ln"}, "log": {tokFunc, "log"}, "exp": {tokFunc, "exp"}, "abs": {tokFunc, "abs"},
	"and": {tokOp, ","}, "or": {tokOp, ","}, "percent": {tokOp, "%"}, "percentage": {tokOp, "%"}, "pct": {tokOp, "%"},
	"degrees": {tokOp, "degree"}, "degree": {tokOp, "degree"}, "deg": {tokOp, "degree"}, "radians": {}, "radian": {}, "rad": {},
	"dozen": {tokSymbol, "dozen"}, "hundred": {tokSymbol, "hundred"},
	"thousand": {tokSymbol, "thousand"}, "million": {tokSymbol, "million"}, "billion": {tokSymbol, "billion"}, "trillion": {tokSymbol, "trillion"},
	"dozens": {tokSymbol, "dozen"}, "hundreds": {tokSymbol, "hundred"},
	"thousands": {tokSymbol, "thousand"}, "millions": {tokSymbol, "million"}, "billions": {tokSymbol, "billion"}, "trillions": {tokSymbol, "trillion"},
	"approximately": {}, "approx": {}, "about": {}, "roughly": {}, "exactly": {}, "around": {},
}

var commands = map[string]name{
	"frac": {tokOp, "frac"}, "dfrac": {tokOp, "frac"}, "tfrac": {tokOp, "frac"}, "cfrac": {tokOp, "frac"}, "sqrt": {tokOp, "sqrt"},
	"binom": {tokOp, "binom"}, "dbinom": {tokOp, "binom"}, "tbinom": {tokOp, "binom"},
	"cdot": {tokOp, "*"}, "times": {tokOp, "*"}, "ast": {tokOp, "*"}, "div": {tokOp, "/"}, "pm": {tokOp, "pm"}, "mp": {tokOp, "mp"},
	"le": {tokOp, "<="}, "leq": {tokOp, "<="}, "leqslant": {tokOp, "<="}, "ge": {tokOp, ">="}, "geq": {tokOp, ">="}, "geqslant": {tokOp, ">="},
	"lt": {tokOp, "<"}, "gt": {tokOp, ">"}, "ne": {tokOp, "!="}, "neq": {tokOp, "!="}, "approx": {tokOp, "approx"}, "simeq": {tokOp, "approx"},
	"in": {tokOp, "in"}, "cup": {tokOp, "cup"}, "infty": {tokSymbol, "infty"}, "pi": {tokSymbol, "pi"}, "circ": {tokOp, "degree"}, "degree": {tokOp, "degree"},
	"emptyset": {tokOp, "emptyset"}, "varnothing": {tokOp, "emptyset"}, "lbrace": {tokOp, `\{`}, "rbrace": {tokOp, `\}`},
	"lvert": {tokOp, "lvert"}, "rvert": {tokOp, "rvert"}, "vert": {tokOp, "|"}, "mid": {tokOp, "|"},
	"lfloor": {tokOp, "lfloor"}, "rfloor": {tokOp, "rfloor"}, "lceil": {tokOp, "lceil"}, "rceil": {tokOp, "rceil"},
	"land": {tokOp, ","}, "wedge": {tokOp, ","}, "lor": {tokOp, ","}, "vee": {tokOp, ","}, "euro": {tokWord, "€"}, "pound": {tokWord, "£"},
	"sin": {tokFunc, "sin"}, "cos": {tokFunc, "cos"}, "tan": {tokFunc, "tan"}, "cot": {tokFunc, "cot"}, "sec": {tokFunc, "sec"}, "csc": {tokFunc, "csc"},
	"arcsin": {tokFunc, "arcsin"}, "arccos": {tokFunc, "arccos"}, "arctan": {tokFunc, "arctan"},
	"sinh": {tokFunc, "sinh"}, "cosh": {tokFunc, "cosh"}, "tanh": {tokFunc, "tanh"},
	"ln": {tokFunc, "ln"}, "log": {tokFunc, "log"}, "exp": {tokFunc, "exp"},
}

var ignored = set("left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "displaystyle", "textstyle", "limits",
	"quad", "qquad", "boxed", "fbox", "hfill", "thinspace")

var textCommands = set("text", "textbf", "textit", "textrm", "texttt", "mathrm", "mbox", "hbox", "operatorname", "mathit", "mathsf", "rm", "bf", "it", "textnormal")

var greek = set("alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa", "lambda", "mu", "nu", "xi",
	"rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell")

func set(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

// unit is a unit of measurement: how many of the dimension's base unit it is.
type unit struct {
	dimension string
	factor    *big.Rat
}

// units are read in lower case, without a plural s where the word has four letters or more.
var units = func() map[string]unit {
	out := map[string]unit{}
	add := func(dimension, factor string, names ...string) {
		f, _ := new(big.Rat).SetString(factor)
		for _, n := range names {
			out[n] = unit{dimension, f}
		}
	}
	add("m", "1", "m", "meter", "metre")
	add("m", "1000", "km", "kilometer", "kilometre")
	add("m", "1/10", "dm", "decimeter")
	add("m", "1/100", "cm", "centimeter", "centimetre")
	add("m", "1/1000", "mm", "millimeter", "millimetre")
	add("m", "254/10000", "in", "inch", "inches")
	add("m", "3048/10000", "ft", "foot", "feet")
	add("m", "9144/10000", "yd", "yard")
	add("m", "1609344/1000", "mi", "mile")
	add("s", "1", "s", "sec", "second")
	add("s", "1/1000", "ms", "millisecond")
	add("s", "60", "min", "minute", "mins")
	add("s", "3600", "h", "hr", "hrs", "hour")
	add("s", "86400", "day")
	add("s", "604800", "week")
	add("month", "1", "month")
	add("month", "12", "year", "yr", "yrs", "y")
	add("g", "1", "g", "gram")
	add("g", "1/1000", "mg", "milligram")
	add("g", "1000", "kg", "kilogram")
	add("g", "1000000", "tonne")
	add("g", "45359237/100000", "lb", "lbs", "pound")
	add("g", "45359237/1600000", "oz", "ounce")
	add("$", "1", "$", "dollar", "usd")
	add("$", "1/100", "cent")
	add("€", "1", "€", "euro", "eur")
	add("£", "1", "£", "gbp")
	add("force", "1000", "n", "newton")
	add("energy", "1000", "j", "joule")
	add("energy", "1000000", "kj", "kilojoule")
	add("power", "1000", "w", "watt")
	add("power", "1000000", "kw", "kilowatt")
	add("voltage", "1000", "v", "volt")
	add("a", "1", "a", "ampere", "amp")
	add("k", "1", "k", "kelvin")
	add("1/s", "1", "hz", "hertz")
	add("1/s", "1/60", "rpm")
	add("celsius", "1", "celsius", "c")
	add("fahrenheit", "1", "fahrenheit", "f")
	add("mol", "1", "mol", "mole")
	add("unit", "1", "unit")
	add("m/s", "44704/100000", "mph")
	add("m/s", "1000/3600", "kph")
	add("m^3", "1/1000", "l", "liter", "litre")
	add("m^3", "1/1000000", "ml", "milliliter", "millilitre")
	add("m^3", "3785411784/1000000000000", "gal", "gals", "gallon")
	add("m^3", "946352946/1000000000000", "qt", "qts", "quart")
	return out
}()

// basic are the units of which the others are products.
var basic = map[string]map[string]int{
	"m/s": {"m": 1, "s": -1}, "m^3": {"m": 3}, "1/s": {"s": -1},
	"force": {"g": 1, "m": 1, "s": -2}, "energy": {"g": 1, "m": 2, "s": -2}, "power": {"g": 1, "m": 2, "s": -3}, "voltage": {"g": 1, "m": 2, "s": -3, "a": -1},
}

// statements are words that say something of the letters before them: no unit, and nothing that is counted.
var statements = set("is", "are", "not", "only", "even", "odd", "prime", "divides")

// operations are words that make another number of the one before them, not always the same: 5 mil is 5 million or 5/1000 of an inch. A
// value before one equals only the same value before the same words.
var operations = set("squared", "cubed", "factorial", "half", "halves", "twice", "mil", "mils")

// parts are the parts of a whole: 2 thirds are 2/3. Quarters may be coins, and halves are among the operations.
var parts = map[string]int64{
	"third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10, "twelfth": 12,
	"hundredth": 100, "thousandth": 1000,
}

// shortWords are the words of two letters; two others are a product of variables.
var shortWords = set("am", "an", "as", "at", "be", "by", "do", "go", "he", "hi", "if", "in", "is", "it", "me", "my", "no", "of", "oh", "ok", "on", "or", "ox",
	"pm", "so", "to", "up", "us", "we")

// inflections are endings of a word in the singular and in the plural, each with the least length of what stands before.
var inflections = []struct {
	singular, plural string
	stem             int
}{
	{"", "s", 3},
	{"", "es", 3},
	{"y", "ies", 1},
	{"f", "ves", 2},
	{"fe", "ves", 2},
	{"ex", "ices", 1},
	{"ix", "ices", 1},
	{"man", "men", 0},
	{"person", "people", 0},
	{"persons", "people", 0},
	{"child", "children", 0},
	{"point", "pts", 0},
	{"points", "pts", 0},
}
