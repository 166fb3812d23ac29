package job

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var envPattern = regexp.MustCompile(`\$\{([^{}]*)\}`)

// scalars reads texts, numbers, true and false, and replaces environment variables in them.
type scalars struct {
	found   *findings
	env     func(string) (string, bool)
	secrets map[string]string // by path: what the copy of the job shows instead
}

// expand replaces ${NAME} by the environment. The path of the value is then a secret: the run's copy keeps ${NAME}. Of a value that the file holds
// literally the copy hides what is a key or a password.
func (r *scalars) expand(n *yaml.Node, path string) (value string, expanded bool) {
	value = envPattern.ReplaceAllStringFunc(n.Value, func(m string) string {
		expanded = true
		name := m[2 : len(m)-1]
		v, ok := r.env(name)
		if !ok {
			r.found.fail(n, "%s: the environment variable %q is not set", path, name)
		}
		return v
	})
	shown := withoutPassword(n.Value)
	switch {
	case !expanded && isSecret(path) && n.Value != "":
		r.secrets[path] = Secret
	case expanded || shown != n.Value:
		r.secrets[path] = shown
	}
	return value, expanded
}

// Secret stands in the copy of a job for a key or a password that the file held literally.
const Secret = "(secret)"

var addressed = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://[^/?#:@\s]*:)([^/?#\s]+)(@\S*)$`) // with a user and a password

// withoutPassword is a text with (secret) for the password of the address that it is, unless that comes from the environment.
func withoutPassword(text string) string {
	m := addressed.FindStringSubmatch(text)
	if m == nil || envPattern.ReplaceAllString(m[2], "") == "" {
		return text
	}
	return m[1] + Secret + m[3]
}

func isSecret(path string) bool {
	if path == "agent.key" { // other keys of that name are fields and columns
		return true
	}
	key := strings.ToLower(path[strings.LastIndexByte(path, '.')+1:])
	for _, s := range []string{"_key", "-key", "token", "password", "secret", "authorization", "cookie"} { // names of headers too
		if strings.HasSuffix(key, s) {
			return true
		}
	}
	return false
}

// scalar returns the node with its environment variables replaced, and typed anew if it had some, quoted or not. ok is
// false when a variable is not set, which is reported here.
func (r *scalars) scalar(n *yaml.Node, path string) (out *yaml.Node, ok bool) {
	if n.Kind != yaml.ScalarNode {
		return n, true
	}
	before := len(r.found.problems)
	value, expanded := r.expand(n, path)
	if !expanded {
		return n, true
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value}, len(r.found.problems) == before
}

func (r *scalars) text(n *yaml.Node, path string) string {
	value, expanded := n, false
	if n.Kind == yaml.ScalarNode {
		s, e := r.expand(n, path)
		value, expanded = &yaml.Node{Kind: yaml.ScalarNode, Value: s}, e
	}
	if n.Kind != yaml.ScalarNode || !expanded && n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp" { // a day is a text, as it is written
		r.found.fail(n, "%s: %s, allowed is a text%s", path, kindName(n), quoteHint(n))
		return ""
	}
	return value.Value
}

func quoteHint(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		return fmt.Sprintf("; write %q in quotes", n.Value)
	}
	return ""
}

func (r *scalars) boolean(n *yaml.Node, path string) bool {
	s, ok := r.scalar(n, path)
	if !ok {
		return false
	}
	if s.Kind != yaml.ScalarNode || s.ShortTag() != "!!bool" {
		r.found.fail(n, "%s: %s, allowed is true or false", path, kindName(s))
		return false
	}
	return strings.EqualFold(s.Value, "true")
}

// count reads a whole number from 0 to most.
func (r *scalars) count(n *yaml.Node, path string, most float64) int {
	return int(r.integer(n, path, limits{min: 0, max: most, hasMin: true, hasMax: true}))
}

// limits of a number; NaN leaves a side open.
type limits struct {
	min, max, above          float64
	hasMin, hasMax, hasAbove bool
	unit                     string
}

func limitsOf(f reflect.StructField) limits {
	var l limits
	read := func(tag string, into *float64) bool {
		v, err := strconv.ParseFloat(f.Tag.Get(tag), 64)
		*into = v
		return err == nil
	}
	l.hasMin, l.hasMax, l.hasAbove = read("min", &l.min), read("max", &l.max), read("above", &l.above)
	l.unit = f.Tag.Get("unit")
	return l
}

func (l limits) allowed(kind string) string {
	if l.hasMin && l.hasMax && l.min == l.max {
		return "allowed is " + strconv.FormatFloat(l.min, 'g', -1, 64)
	}
	out := "allowed is " + kind
	show := func(v float64) string {
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	switch {
	case l.hasMin && l.hasMax:
		out += " from " + show(l.min) + " to " + show(l.max)
	case l.hasAbove && l.hasMax:
		out += " above 0 up to " + show(l.max)
	case l.hasMin:
		out += " of " + show(l.min) + " or more"
	case l.hasAbove:
		out += " above " + show(l.above)
	}
	if l.unit != "" {
		out += " (" + l.unit + ")"
	}
	return out
}

var thousands = regexp.MustCompile(`^[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+([^0-9,]|$)`) // commas that group digits by three

// hint is how to write what was meant by a text where a number stands: 30s, 4k, "16", 1,024, 0,7. "" where that is refused too.
func (l limits) hint(n *yaml.Node, whole bool) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	if took, err := time.ParseDuration(n.Value); err == nil && l.unit == "s" {
		return fmt.Sprintf("; write the seconds alone: %v", took.Seconds())
	}
	bare, times := strings.NewReplacer("_", "", "'", "", " ", "").Replace(n.Value), 1.0
	switch {
	case thousands.MatchString(bare):
		bare = strings.ReplaceAll(bare, ",", "")
	case strings.Count(bare, ",") == 1: // the decimal comma of many languages
		bare = strings.Replace(bare, ",", ".", 1)
	}
	if len(bare) > 1 && strings.ContainsAny(bare[len(bare)-1:], "kK") {
		bare, times = bare[:len(bare)-1], 1000
	}
	v, err := strconv.ParseFloat(bare, 64)
	v *= times
	const exact = 1 << 53 // up to which a float64 is the whole number that was written
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || !l.ok(v) || whole && (v != math.Trunc(v) || math.Abs(v) > exact) {
		return ""
	}
	return "; write " + strconv.FormatFloat(v, 'f', -1, 64)
}

func (l limits) ok(v float64) bool {
	return !(l.hasMin && v < l.min || l.hasMax && v > l.max || l.hasAbove && v <= l.above)
}

func (r *scalars) integer(n *yaml.Node, path string, l limits) int64 {
	s, ok := r.scalar(n, path)
	if !ok {
		return 0
	}
	var v int64
	if s.Kind != yaml.ScalarNode || s.ShortTag() != "!!int" || s.Decode(&v) != nil {
		r.found.fail(n, "%s: %s, %s%s", path, kindName(s), l.allowed("a whole number"), l.hint(s, true))
		return 0
	}
	if !l.ok(float64(v)) {
		r.found.fail(n, "%s: %d is out of range, %s", path, v, l.allowed("a whole number"))
	}
	return v
}

// unsigned reads a whole number of 64 bits, the last of which no limits hold: they are floating-point numbers.
func (r *scalars) unsigned(n *yaml.Node, path string) uint64 {
	s, ok := r.scalar(n, path)
	if !ok {
		return 0
	}
	var v uint64
	if s.Kind != yaml.ScalarNode || s.ShortTag() != "!!int" || s.Decode(&v) != nil {
		r.found.fail(n, "%s: %s, allowed is a whole number from 0 to %d%s", path, kindName(s), uint64(math.MaxUint64), limits{hasMin: true}.hint(s, true))
		return 0
	}
	return v
}

func (r *scalars) number(n *yaml.Node, path string, l limits) float64 {
	s, ok := r.scalar(n, path)
	if !ok {
		return 0
	}
	var v float64
	if s.Kind != yaml.ScalarNode || s.ShortTag() != "!!int" && s.ShortTag() != "!!float" || s.Decode(&v) != nil {
		r.found.fail(n, "%s: %s, %s%s", path, kindName(s), l.allowed("a number"), l.hint(s, false))
		return 0
	}
	if math.IsNaN(v) || math.IsInf(v, 0) || !l.ok(v) {
		r.found.fail(n, "%s: %v is out of range, %s", path, v, l.allowed("a number"))
		return 0
	}
	return v
}

// kindName describes what was written.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "nothing"
		case "!!str":
			return fmt.Sprintf("the text %q", short(n.Value))
		case "!!bool", "!!int", "!!float":
			return short(n.Value)
		}
		return fmt.Sprintf("%q of type %s", short(n.Value), n.ShortTag())
	}
	return "nothing"
}

func short(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
