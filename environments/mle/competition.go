package mle

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// competition is generated whole from two numbers. The answers of its test rows are in this process alone: no file has them.
type competition struct {
	title    string
	kind     string // linear, groups or clusters
	metric   metric
	features []string
	target   string
	train    []row
	test     []row // with the answers
	public   []bool
	boards   [2]board // public, private
}

// row is a line of train.csv, or of test.csv with its answer.
type row struct {
	id      int
	numbers []float64
	group   string // of groups
	answer  string
}

// metric is how submissions are scored.
type metric struct {
	name   string
	higher bool // is better
}

const (
	teams    = 40 // of a leaderboard
	trainMin = 240
	testRows = 160
)

var (
	subjects = strings.Fields("bakery ferry vineyard reservoir greenhouse tramway apiary sawmill lighthouse quarry laundry museum stable foundry hostel cinema dairy pharmacy harbour brewery")
	measures = strings.Fields("load width rate depth price age speed heat pressure mass height dose density volume share noise")
	goals    = strings.Fields("demand yield delay cost wear output revenue quality")
	groups   = strings.Fields("north south east west")
	labels   = strings.Fields("low medium high")
)

// generate makes the competition of a number.
func generate(seed, level int64) *competition {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(level)^0x3e11))
	c := &competition{target: goals[r.IntN(len(goals))]}
	c.kind = []string{"linear", "groups", "clusters"}[r.IntN(3)]
	for _, i := range r.Perm(len(measures))[:2+r.IntN(3)] {
		c.features = append(c.features, measures[i])
	}
	c.title = fmt.Sprintf("%s of the %s %d", c.target, subjects[r.IntN(len(subjects))], 100+r.IntN(900))
	draw := map[string]func(r *rand.Rand) func() row{"linear": c.linear, "groups": c.grouped, "clusters": c.clusters}[c.kind](r)
	for i := range trainMin + r.IntN(120) {
		x := draw()
		x.id = i + 1
		c.train = append(c.train, x)
	}
	for i := range testRows {
		x := draw()
		x.id = 10_000 + i
		c.test = append(c.test, x)
		c.public = append(c.public, false)
	}
	for _, i := range r.Perm(testRows)[:testRows/2] {
		c.public[i] = true
	}
	c.rank(r)
	return c
}

// round keeps three digits, as the files have them.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

func text(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func (c *competition) numbers(r *rand.Rand) []float64 {
	out := make([]float64, len(c.features))
	for i := range out {
		out[i] = round(r.NormFloat64() * 3)
	}
	return out
}

// linear: the answer is a weighted sum.
func (c *competition) linear(r *rand.Rand) func() row {
	c.metric = metric{name: "rmse"}
	weights, offset := make([]float64, len(c.features)), r.NormFloat64()*5
	for i := range weights {
		weights[i] = (1 + r.Float64()*2) * float64(1-2*r.IntN(2))
	}
	return func() row {
		x := row{numbers: c.numbers(r)}
		y := offset + r.NormFloat64()*0.3
		for i, w := range weights {
			y += w * x.numbers[i]
		}
		x.answer = text(round(y))
		return x
	}
}

// grouped: the answer grows with the first number, in each group at a rate of its own.
func (c *competition) grouped(r *rand.Rand) func() row {
	c.metric = metric{name: "mae"}
	rates, offsets := map[string]float64{}, map[string]float64{}
	for i, g := range groups {
		rates[g], offsets[g] = float64(i)*1.5-2+r.Float64(), r.NormFloat64()*4
	}
	return func() row {
		x := row{numbers: c.numbers(r), group: groups[r.IntN(len(groups))]}
		x.answer = text(round(offsets[x.group] + rates[x.group]*x.numbers[0] + r.NormFloat64()*0.3))
		return x
	}
}

// clusters: the answer is the nearest of a few centres.
func (c *competition) clusters(r *rand.Rand) func() row {
	c.metric = metric{name: "accuracy", higher: true}
	centres := make([][]float64, len(labels))
	for i := range centres {
		centres[i] = c.numbers(r)
		centres[i][i%len(c.features)] += 6 * float64(1-i%2*2)
		centres[i][(i+1)%len(c.features)] += 3 * float64(i-1)
	}
	return func() row {
		i := r.IntN(len(labels))
		x := row{numbers: make([]float64, len(c.features)), answer: labels[i]}
		for k := range x.numbers {
			x.numbers[k] = round(centres[i][k] + r.NormFloat64())
		}
		return x
	}
}

// board are the scores of the teams, the best first.
type board []float64

// better tells whether a score is better than another.
func (m metric) better(a, b float64) bool { return a != b && (a > b) == m.higher }

// position is that of a score among n teams, from 1: before all that are not better; n+1: worse than all.
func (b board) position(m metric, score float64) int {
	for i, other := range b {
		if !m.better(other, score) {
			return i + 1
		}
	}
	return len(b) + 1
}

// humanRank is (n − p + 1)/n for the position p of a score on a board of n teams, averaged over the boards that there are (arXiv 2505.07782, as its
// program computes it): 1 for the best, 0 for one that is worse than all; who has the same score as a team stands before it.
func humanRank(m metric, scores []float64, boards []board) float64 {
	sum, n := 0.0, 0
	for i, b := range boards {
		if len(b) > 0 {
			sum += float64(len(b)-b.position(m, scores[i])+1) / float64(len(b))
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// rank makes the boards: the best team is a little worse than a fit that knows the kind of the data, a tenth of the teams is worse than the constant.
func (c *competition) rank(r *rand.Rand) {
	fit, constant := c.score(c.fit()), c.score(c.constant())
	for i := range c.boards {
		for k := range teams {
			t := 0.04 + 1.06*math.Pow(float64(k)/(teams-1), 1.3) + r.Float64()*0.004
			c.boards[i] = append(c.boards[i], fit[i]+(constant[i]-fit[i])*t)
		}
		slices.SortFunc(c.boards[i], func(a, b float64) int {
			if c.metric.better(a, b) {
				return -1
			}
			return 1
		})
	}
}

// score are those of predictions for all test rows, on the public and the private half.
func (c *competition) score(predictions []string) (out [2]float64) {
	var n [2]float64
	for i, x := range c.test {
		half := 1
		if c.public[i] {
			half = 0
		}
		n[half]++
		if c.metric.name == "accuracy" {
			if predictions[i] == x.answer {
				out[half]++
			}
			continue
		}
		want, _ := strconv.ParseFloat(x.answer, 64)
		got, _ := strconv.ParseFloat(predictions[i], 64)
		d := math.Abs(got - want)
		if c.metric.name == "rmse" {
			d *= d
		}
		out[half] += d
	}
	for i := range out {
		if out[i] /= n[i]; c.metric.name == "rmse" {
			out[i] = math.Sqrt(out[i])
		}
	}
	return out
}

// constant predicts what sample_submission.csv does.
func (c *competition) constant() []string {
	value := labels[0]
	if !c.metric.higher {
		sum := 0.0
		for _, x := range c.train {
			y, _ := strconv.ParseFloat(x.answer, 64)
			sum += y
		}
		value = text(round(sum / float64(len(c.train))))
	}
	out := make([]string, len(c.test))
	for i := range out {
		out[i] = value
	}
	return out
}

// fit predicts with what the kind of the data is known to be, learned from the rows to train on.
func (c *competition) fit() []string {
	out := make([]string, len(c.test))
	switch c.kind {
	case "clusters":
		sums, counts := map[string][]float64{}, map[string]float64{}
		for _, x := range c.train {
			if sums[x.answer] == nil {
				sums[x.answer] = make([]float64, len(x.numbers))
			}
			counts[x.answer]++
			for k, v := range x.numbers {
				sums[x.answer][k] += v
			}
		}
		for i, x := range c.test {
			best := math.Inf(1)
			for _, l := range labels {
				d := 0.0
				for k := range sums[l] {
					d += math.Pow(x.numbers[k]-sums[l][k]/counts[l], 2)
				}
				if counts[l] > 0 && d < best {
					best, out[i] = d, l
				}
			}
		}
	default:
		of := func(x row) string { return x.group } // "" of linear
		columns := len(c.features)
		if c.kind == "groups" {
			columns = 1
		}
		weights := map[string][]float64{}
		for _, g := range append([]string{""}, groups...) {
			var rows []row
			for _, x := range c.train {
				if of(x) == g {
					rows = append(rows, x)
				}
			}
			if len(rows) > columns+1 {
				weights[g] = least(rows, columns)
			}
		}
		for i, x := range c.test {
			w := weights[of(x)]
			y := 0.0
			for k := range w {
				if k == columns {
					y += w[k]
				} else {
					y += w[k] * x.numbers[k]
				}
			}
			out[i] = text(y)
		}
	}
	return out
}

// least are the weights of the first columns, and of 1, with the least squared error.
func least(rows []row, columns int) []float64 {
	n := columns + 1
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n+1)
	}
	for _, x := range rows {
		v := append(slices.Clone(x.numbers[:columns]), 1)
		y, _ := strconv.ParseFloat(x.answer, 64)
		for i := range n {
			for k := range n {
				a[i][k] += v[i] * v[k]
			}
			a[i][n] += v[i] * y
		}
	}
	for i := range n {
		p := i
		for k := i; k < n; k++ {
			if math.Abs(a[k][i]) > math.Abs(a[p][i]) {
				p = k
			}
		}
		a[i], a[p] = a[p], a[i]
		for k := range n {
			if k != i && a[i][i] != 0 {
				f := a[k][i] / a[i][i]
				for j := i; j <= n; j++ {
					a[k][j] -= f * a[i][j]
				}
			}
		}
	}
	out := make([]float64, n)
	for i := range out {
		if a[i][i] != 0 {
			out[i] = a[i][n] / a[i][i]
		}
	}
	return out
}

// header are the columns of train.csv but for the target.
func (c *competition) header() []string {
	out := append([]string{"id"}, c.features...)
	if c.kind == "groups" {
		out = append(out, "region")
	}
	return out
}

// files are what the agent finds in data/.
func (c *competition) files() map[string][]byte {
	table := func(header []string, rows []row, cells func(x row) []string) []byte {
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		_ = w.Write(header) // to a buffer
		for _, x := range rows {
			_ = w.Write(cells(x))
		}
		w.Flush()
		return b.Bytes()
	}
	known := func(x row) []string {
		out := []string{strconv.Itoa(x.id)}
		for _, v := range x.numbers {
			out = append(out, text(v))
		}
		if c.kind == "groups" {
			out = append(out, x.group)
		}
		return out
	}
	constant := c.constant()
	return map[string][]byte{
		"train.csv":             table(append(c.header(), c.target), c.train, func(x row) []string { return append(known(x), x.answer) }),
		"test.csv":              table(c.header(), c.test, known),
		"sample_submission.csv": table([]string{"id", c.target}, c.test, func(x row) []string { return []string{strconv.Itoa(x.id), constant[0]} }),
	}
}

// overview is what the agent reads first.
func (c *competition) overview() string {
	better := "lower is better"
	if c.metric.higher {
		better = "higher is better"
	}
	return fmt.Sprintf("Competition: %s. Predict the column %s of data/test.csv (%d rows) from the columns %s; data/train.csv (%d rows) has %s too. "+
		"Your code writes submission.csv with the columns id and %s, as data/sample_submission.csv has them. The metric is %s, %s. %d teams took part.",
		c.title, c.target, len(c.test), strings.Join(c.header()[1:], ", "), len(c.train), c.target, c.target, c.metric.name, better, teams)
}

const longestCell = 64 // characters of a prediction

// read reads a submission. wrong says what of it is not as it must be.
func (c *competition) read(data []byte) (predictions []string, wrong string) {
	r := csv.NewReader(bytes.NewReader(data))
	all, err := r.ReadAll()
	switch {
	case err != nil:
		return nil, "submission.csv is no CSV: " + err.Error()
	case len(all) == 0 || len(all[0]) != 2 || all[0][0] != "id" || all[0][1] != c.target:
		return nil, fmt.Sprintf("submission.csv must have the header id,%s", c.target)
	}
	places := map[string]int{}
	for i, x := range c.test {
		places[strconv.Itoa(x.id)] = i
	}
	predictions = make([]string, len(c.test))
	seen := make([]bool, len(c.test))
	for n, line := range all[1:] {
		at, known := places[line[0]]
		value := strings.TrimSpace(line[1])
		switch {
		case !known:
			return nil, fmt.Sprintf("line %d of submission.csv has the id %.20q, which is none of data/test.csv", n+2, line[0])
		case seen[at]:
			return nil, fmt.Sprintf("submission.csv has the id %s twice", line[0])
		case len(value) > longestCell:
			return nil, fmt.Sprintf("line %d of submission.csv has a prediction of %d characters", n+2, len(value))
		}
		if !c.metric.higher {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || math.IsNaN(v) || math.Abs(v) > 1e100 {
				return nil, fmt.Sprintf("line %d of submission.csv has the prediction %.20q, which is no finite number", n+2, value)
			}
		}
		predictions[at], seen[at] = value, true
	}
	if missing := slices.Index(seen, false); missing >= 0 {
		return nil, fmt.Sprintf("submission.csv has no line for the id %d", c.test[missing].id)
	}
	return predictions, ""
}
