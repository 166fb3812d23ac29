package repository

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/environments/boxed"
)

// call is a function of a module with its arguments: [module, function, arguments].
type call [3]any

// part is a module of a generated package. In code and says, K and P stand for two numbers of the package.
type part struct {
	module, function string
	code             string
	faults           [][2]string // text of code, and what stands there in its place
	says             string      // what the function must do
	k, p             [2]int      // ranges of K and P
	arguments        func(r *rand.Rand, k, p int) []any
}

// parts are what packages are made of.
var parts = []part{
	{
		module: "pricing", function: "total",
		code:   "def total(prices):\n    amount = sum(prices)\n    if len(prices) >= K:\n        amount -= amount * P // 100\n    return amount\n",
		faults: [][2]string{{">= K", "> K"}, {"* P // 100", "// 100 * P"}, {"len(prices) >=", "amount >="}},
		says:   "total(prices) adds up whole prices; from K prices on it takes P percent of the sum off, rounded down to a whole number before it is subtracted",
		k:      [2]int{2, 9}, p: [2]int{3, 60},
		arguments: func(r *rand.Rand, k, _ int) []any { return []any{numbers(r, max(0, k+r.IntN(5)-2), 1, 400)} },
	},
	{
		module: "windows", function: "sums",
		code:   "def sums(values, width=K):\n    out = []\n    for start in range(len(values) - width + 1):\n        out.append(sum(values[start:start + width]))\n    return out\n",
		faults: [][2]string{{" - width + 1", " - width"}, {"start:start + width", "start:start + width - 1"}},
		says:   "sums(values) is the list of the sums of all K neighbouring values, and empty where there are fewer",
		k:      [2]int{2, 8}, p: [2]int{0, 1},
		arguments: func(r *rand.Rand, k, _ int) []any { return []any{numbers(r, max(0, k+r.IntN(6)-2), -50, 50)} },
	},
	{
		module: "layout", function: "lines",
		code:   "def lines(words, width=K):\n    out, line = [], \"\"\n    for word in words:\n        if line and len(line) + 1 + len(word) > width:\n            out.append(line)\n            line = word\n        elif line:\n            line += \" \" + word\n        else:\n            line = word\n    if line:\n        out.append(line)\n    return out\n",
		faults: [][2]string{{"len(line) + 1 + len(word)", "len(line) + len(word)"}, {"> width", ">= width"}, {"    if line:\n        out.append(line)\n    return", "    return"}},
		says:   "lines(words) fills lines of at most K characters with words, one space between two; a longer word has a line of its own",
		k:      [2]int{6, 30}, p: [2]int{0, 1},
		arguments: func(r *rand.Rand, k, _ int) []any {
			out := []any{}
			for range 3 + r.IntN(10) {
				out = append(out, strings.Repeat(string(rune('a'+r.IntN(26))), 1+r.IntN(max(2, k/2))))
			}
			return []any{out}
		},
	},
	{
		module: "runs", function: "encode",
		code:   "def encode(text):\n    out, start = [], 0\n    for i in range(1, len(text) + 1):\n        if i == len(text) or text[i] != text[start]:\n            length = i - start\n            out.append(text[start] * length if length < K else text[start] + str(length))\n            start = i\n    return \"\".join(out)\n",
		faults: [][2]string{{"length < K", "length <= K"}, {"range(1, len(text) + 1)", "range(1, len(text))"}, {"text[i] != text[start]", "text[i] < text[start]"}},
		says:   "encode(text) writes every run of K or more equal letters as the letter and the length of the run, and shorter runs as they are",
		k:      [2]int{2, 7}, p: [2]int{0, 1},
		arguments: func(r *rand.Rand, k, _ int) []any {
			text := ""
			for range r.IntN(7) {
				text += strings.Repeat(string(rune('a'+r.IntN(4))), max(1, k+r.IntN(4)-2))
			}
			return []any{text}
		},
	},
	{
		module: "ranges", function: "merge",
		code:   "def merge(ranges, gap=K):\n    out = []\n    for first, last in sorted(ranges):\n        if out and first - out[-1][1] <= gap:\n            out[-1][1] = max(out[-1][1], last)\n        else:\n            out.append([first, last])\n    return out\n",
		faults: [][2]string{{"<= gap", "< gap"}, {"in sorted(ranges)", "in ranges"}, {"max(out[-1][1], last)", "last"}},
		says:   "merge(ranges) joins pairs [first, last], given in any order, where the next one begins at most K behind the end of the one before, and returns them in order",
		k:      [2]int{1, 12}, p: [2]int{0, 1},
		arguments: func(r *rand.Rand, k, _ int) []any {
			out, at := []any{}, 0
			for range 2 + r.IntN(5) {
				at += r.IntN(2*k + 2)
				end := at + r.IntN(3*k)
				out = append(out, []any{at, end})
				if r.IntN(2) == 0 {
					at = end + k + r.IntN(3) - 1
				}
			}
			r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			return []any{out}
		},
	},
	{
		module: "buckets", function: "count",
		code:   "def count(values, size=K):\n    out = {}\n    for value in values:\n        bucket = value // size\n        out[str(bucket)] = out.get(str(bucket), 0) + 1\n    return out\n",
		faults: [][2]string{{"value // size", "int(value / size)"}, {"get(str(bucket), 0) + 1", "get(str(bucket), 1)"}},
		says:   "count(values) counts the values of each bucket of the size K; the name of a bucket is the value divided by the size, rounded down, also below zero",
		k:      [2]int{3, 25}, p: [2]int{0, 1},
		arguments: func(r *rand.Rand, k, _ int) []any { return []any{numbers(r, 3+r.IntN(9), -3*k, 3*k)} },
	},
	{
		module: "digits", function: "digits",
		code:   "def digits(number, base=K):\n    out = []\n    while number:\n        number, digit = divmod(number, base)\n        out.insert(0, digit)\n    return out or [0]\n",
		faults: [][2]string{{"out or [0]", "out"}, {"insert(0, digit)", "append(digit)"}, {"while number:", "while number >= base:"}},
		says:   "digits(number) is the list of the digits of a number of 0 or more in base K, the highest first; those of 0 are [0]",
		k:      [2]int{2, 40}, p: [2]int{0, 1},
		arguments: func(r *rand.Rand, k, _ int) []any { return []any{r.IntN(2) * r.IntN(k*k*k)} },
	},
	{
		module: "ranking", function: "best",
		code:   "def best(scores, places=K):\n    names = sorted(scores, key=lambda name: (-scores[name], name))\n    return [[name, scores[name]] for name in names if scores[name] >= P][:places]\n",
		faults: [][2]string{{"(-scores[name], name)", "(-scores[name], -ord(name[0]))"}, {">= P", "> P"}, {"if scores[name] >= P][:places]", "][:places]"}},
		says:   "best(scores) takes a mapping of names to scores and lists the K best as [name, score], the highest first and equal ones by name, none below P",
		k:      [2]int{2, 6}, p: [2]int{5, 60},
		arguments: func(r *rand.Rand, _, p int) []any {
			out := map[string]any{}
			for i := range 3 + r.IntN(7) {
				out[string(rune('a'+(i*7+r.IntN(3))%26))+"x"] = max(0, p+r.IntN(5)-2)
			}
			return []any{out}
		},
	},
}

// numbers are n whole ones.
func numbers(r *rand.Rand, n, least, most int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = least + r.IntN(most-least+1)
	}
	return out
}

// places are names of packages.
var places = strings.Fields("harbor ledger garden mill bakery library station orchard foundry museum quarry theatre bridge market clinic studio")

// pack is a generated package.
type pack struct {
	id      string // no other package has it; name and problem may be another's too
	name    string
	good    map[string]string // files as they should be
	path    string            // of the file with the fault
	fault   [2]string         // the text that should stand there, and that which does
	problem string
	calls   []call
}

const callsEach = 40 // of a module

// generate makes the package of a number.
func generate(seed, level int64) *pack {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(level)))
	p := &pack{id: fmt.Sprintf("%d of seed %d", level, seed), name: fmt.Sprintf("%s%d", places[r.IntN(len(places))], r.IntN(90)+10), good: map[string]string{}}
	chosen := r.Perm(len(parts))[:3]
	for n, at := range chosen {
		t := parts[at]
		k, q := t.k[0]+r.IntN(t.k[1]-t.k[0]), t.p[0]+r.IntN(t.p[1]-t.p[0])
		fill := func(text string) string { return filled(text, k, q) }
		path := p.name + "/" + t.module + ".py"
		p.good[path] = fmt.Sprintf("\"\"\"%s.\"\"\"\n\n\n", strings.ReplaceAll(fill(t.says), `"`, "'")) + fill(t.code)
		if n == 0 {
			f := t.faults[r.IntN(len(t.faults))]
			p.path, p.fault = path, [2]string{fill(f[0]), fill(f[1])}
			p.problem = fmt.Sprintf("The package %s has a fault. Its function %s.%s does not always do what it should: %s. Mend it. Everything else must stay as it is.",
				p.name, t.module, t.function, fill(t.says))
		}
		for range callsEach {
			p.calls = append(p.calls, call{p.name + "." + t.module, t.function, t.arguments(r, k, q)})
		}
	}
	p.good[p.name+"/__init__.py"] = ""
	var modules []string
	for _, at := range chosen {
		modules = append(modules, fmt.Sprintf("from %s.%s import %s", p.name, parts[at].module, parts[at].function))
	}
	slices.Sort(modules)
	p.good["README.md"] = "# " + p.name + "\n\nTests: `python3 -m unittest`.\n"
	p.good["tests/__init__.py"] = ""
	p.good["tests/test_import.py"] = "import unittest\n\n" + strings.Join(modules, "\n") + "\n\n\nclass TestImport(unittest.TestCase):\n    def test_functions(self):\n        for f in (" + functions(chosen) + "):\n            self.assertTrue(callable(f))\n"
	return p
}

func functions(chosen []int) string {
	out := ""
	for _, at := range chosen {
		out += parts[at].function + ", "
	}
	return out
}

// filled puts the numbers in the places of the words K and P.
func filled(text string, k, p int) string {
	var b strings.Builder
	letter := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] >= 'A' && text[i] <= 'Z' || text[i] == '_')
	}
	for i := range len(text) {
		switch {
		case text[i] == 'K' && !letter(i-1) && !letter(i+1):
			fmt.Fprint(&b, k)
		case text[i] == 'P' && !letter(i-1) && !letter(i+1):
			fmt.Fprint(&b, p)
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// content is all that tells the packages of two numbers apart for an agent that has read the task.
func (p *pack) content() string { return p.problem }

// files are those that the agent finds.
func (p *pack) files(good bool) map[string]string {
	out := maps.Clone(p.good)
	if !good {
		out[p.path] = strings.Replace(out[p.path], p.fault[0], p.fault[1], 1)
	}
	return out
}

func (p *pack) write(f *boxed.Folder, good bool) error {
	for name, text := range p.files(good) {
		if err := boxed.Write(f.Root(), name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// control is what is known of a task from runs without the agent.
type control struct {
	mu      sync.Mutex
	answers []string // of the calls, of the package as it should be
	checked bool     // an instance whose tests work here
}

func (s *source) control(name string) *control {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.controls[name]
	if c == nil {
		c = &control{}
		s.controls[name] = c
	}
	return c
}

// work is the package as a task.
func (p *pack) work() *work {
	return &work{
		name: p.name, problem: p.problem,
		fill:  func(_ context.Context, _ *source, f *boxed.Folder) error { return p.write(f, false) },
		judge: p.judge,
		solve: []string{"cat >" + p.path + " <<'MENDED'\n" + p.good[p.path] + "MENDED\n"},
	}
}

// wanted are the values of the calls of the package as it should be, which no folder of an agent has.
func (p *pack) wanted(ctx context.Context, s *source) ([]string, error) {
	c := s.control(p.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers != nil {
		return c.answers, nil
	}
	f, err := s.folder()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := p.write(f, true); err != nil {
		return nil, err
	}
	if err := f.Own(); err != nil {
		return nil, err
	}
	answers, r, err := s.answers(ctx, f, p.calls)
	if err != nil {
		return nil, err
	}
	if len(answers) != len(p.calls) || r.stopped != "" {
		return nil, fmt.Errorf("%s does not run the package as it should be (%s): %s", s.params.Python, r.stopped, oneLine(r.said))
	}
	c.answers = answers
	return answers, nil
}

// judge calls the functions of the agent's package, and compares the values here with those of the package as it should be: no program of the agent's
// has these, so that none can say that its tests passed.
func (p *pack) judge(ctx context.Context, s *source, f *boxed.Folder) (*verdict, error) {
	wanted, err := p.wanted(ctx, s)
	if err != nil {
		return nil, err
	}
	got, r, err := s.answers(ctx, f, p.calls)
	if err != nil {
		return nil, err
	}
	v := &verdict{reward: 1, said: r.said}
	if r.stopped != "" {
		v.failed, v.reward = append(v.failed, "stopped: "+r.stopped), 0
	}
	if len(got) > len(wanted) {
		v.reward = 0
	}
	for i, want := range wanted {
		if i >= len(got) || got[i] != want {
			v.reward = 0
			if len(v.failed) < mostFailed {
				v.failed = append(v.failed, fmt.Sprintf("%s.%s %d", p.calls[i][0], p.calls[i][1], i))
			}
		}
	}
	return v, nil
}
