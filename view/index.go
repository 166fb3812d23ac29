package view

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// entry is what lists, filters and sums know of a trajectory.
type entry struct {
	ID        string
	Phase     string
	Step      int // that it was sampled for
	Group     int
	Index     int
	Branch    trajectory.Branch // in the tree that grows from Index
	Forked    int               // turns that it has of the one that it forks off
	ForkedAt  int               // tokens that it has of that one's next completion; 0: it forks between turns
	Task      string
	Reward    float64 // all that it was paid; NaN: nobody scored it
	Parts     int     // of its reward; a job's rewards leave one each
	Stop      string
	Origin    string // of its error
	Turns     int
	Tokens    int // sampled
	Seconds   float64
	Lowest    int32 // policy version of a sampled token; -1 without any
	Staleness int   // -1: it was not trained
	TrainedAt int   // step; -1: it was not trained
	Dropped   bool  // it will not be: a step left its group out, or it was given up
	Calls     []call

	text   []byte // in lower case; nil: nothing, or unread
	unread bool   // the memory for texts was used up
}

// call is a tool call of an entry.
type call struct {
	Tool    string
	Cause   string // "": it did not fail
	Why     string // the first line of what a failed one said
	Seconds float64
	Again   bool // it was made for another trajectory of the tree, and is counted there
}

func (e *entry) failedCalls() (n int) {
	for _, c := range e.Calls {
		if c.Cause != "" {
			n++
		}
	}
	return n
}

// when is the place in time of what the trajectory was sampled for.
func (e *entry) when() int { return store.When(e.Phase, e.Step) }

// scored tells whether the reward counts: one that failed has none.
func (e *entry) scored() bool { return e.Origin == "" && !math.IsNaN(e.Reward) }

// newEntry sums a trajectory up. names keeps one copy of each name.
func newEntry(phase string, t *trajectory.Trajectory, names *interner) *entry {
	e := &entry{
		ID: t.ID, Phase: names.of(phase), Step: t.Step, Group: t.Group, Index: t.Index, Branch: t.Branch, Forked: t.Forked, ForkedAt: t.ForkedAt, Task: names.of(t.TaskID), Reward: t.Return(),
		Stop: names.of(string(t.StopReason)), Origin: names.of(string(t.ErrOrigin)), Turns: len(t.Turns), Seconds: t.Seconds, Parts: len(t.RewardParts), Lowest: -1, Staleness: -1, TrainedAt: -1,
	}
	if !t.Failed() && !t.Scored() {
		e.Reward = math.NaN()
	}
	for _, s := range t.Samples {
		for i, on := range s.ResponseMask {
			if on {
				e.Tokens++
				if v := s.PolicyVersion[i]; e.Lowest < 0 || v < e.Lowest {
					e.Lowest = v
				}
			}
		}
	}
	for i := range t.Turns {
		for k := range t.Turns[i].Results {
			r := &t.Turns[i].Results[k]
			cause := string(r.Cause)
			if r.Failed && cause == "" {
				cause = "failed"
			}
			c := call{Tool: names.of(r.Call.Name), Cause: names.of(cause), Seconds: r.Duration.Seconds(), Again: !t.Owns(i)}
			if cause != "" {
				c.Why = names.few(firstLine(r.Observation))
			}
			e.Calls = append(e.Calls, c)
		}
	}
	return e
}

// textOf is what a search for text looks at, beside the task: completions, calls, observations, what an agent of another program sent, the error.
func textOf(t *trajectory.Trajectory) []byte {
	var b bytes.Buffer
	for i := range t.Turns {
		turn := &t.Turns[i]
		for _, text := range turn.Incoming.Texts() {
			b.WriteString(text)
			b.WriteByte('\n')
		}
		b.WriteString(turn.Completion)
		b.WriteByte('\n')
		for k := range turn.Results {
			b.Write(turn.Results[k].Call.Arguments)
			b.WriteByte('\n')
			b.WriteString(turn.Results[k].Observation)
			b.WriteByte('\n')
		}
	}
	b.WriteString(t.Err)
	return bytes.ToLower(b.Bytes())
}

// mostWhy is how many bytes of a failed call's words are kept.
const mostWhy = 160

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if line = strings.TrimSpace(line); len(line) > mostWhy {
		line = strings.ToValidUTF8(line[:mostWhy], "") + "…"
	}
	return line
}

// interner keeps one copy of equal texts.
type interner struct{ known, free map[string]string }

// few is of for texts that may all differ: once too many are kept, new ones are "".
func (n *interner) few(s string) string {
	const most = 20000
	have, ok := n.free[s]
	switch {
	case ok || len(n.free) >= most:
		return have
	case n.free == nil:
		n.free = map[string]string{}
	}
	s = strings.Clone(s)
	n.free[s] = s
	return s
}

func (n *interner) of(s string) string {
	if have, ok := n.known[s]; ok {
		return have
	}
	if n.known == nil {
		n.known = map[string]string{}
	}
	s = strings.Clone(s)
	n.known[s] = s
	return s
}

// index is the entries of a run, in no order. It is guarded by its owner.
type index struct {
	entries []*entry
	place   map[string]int // by id
	batches map[store.GroupRef]store.Batch
	dropped map[store.GroupRef]bool
	done    map[int]bool // steps that are stored
	distils bool         // it is a distillation, which may have no rewards
	names   interner
	texts   int // bytes
	unread  int // trajectories whose text the memory does not hold
	ranked  ranking
	values  map[string]map[string]bool // that filters can have; see choices
	changes int                        // counts what may alter an answer

	last struct { // answer
		filter  filter
		changes int
		found   []*entry
	}
}

// mostText bounds the memory for the texts of a run.
const mostText = 512 << 20

// put adds an entry or replaces the one of its id.
func (x *index) put(e *entry, text []byte) {
	x.changes++
	if x.place == nil {
		x.place = map[string]int{}
	}
	at, known := x.place[e.ID]
	if known { // its text makes room
		x.count(x.entries[at], -1)
	}
	if e.unread = x.texts+len(text) > mostText; !e.unread {
		e.text = text
	}
	x.count(e, 1)
	x.train(e)
	x.score(e)
	x.offer(e)
	if known {
		if tie(x.entries[at], e) != 0 {
			x.ranked = ranking{}
		}
		x.entries[at] = e
		return
	}
	x.place[e.ID] = len(x.entries)
	x.entries = append(x.entries, e)
}

// count adds the text of an entry to what is held and what is not, or takes it away.
func (x *index) count(e *entry, by int) {
	x.texts += by * len(e.text)
	if e.unread {
		x.unread += by
	}
}

// train says which step trained an entry, and how stale it was, or that none will. What fine-tuning learns is stored for its step, which no batch names;
// it was not sampled.
func (x *index) train(e *entry) {
	if e.Phase == store.SFT && x.done[e.Step] {
		e.TrainedAt = e.Step
	}
	if e.Phase != store.Train {
		return
	}
	ref := store.GroupRef{Step: e.Step, Group: e.Group}
	e.Dropped = x.dropped[ref]
	b, ok := x.batches[ref]
	if !ok {
		return
	}
	e.TrainedAt = b.Step
	if e.Lowest >= 0 {
		e.Staleness = int(b.Version - e.Lowest)
	}
}

// score takes the reward of 0 from what nobody scored, of which older programs did not say so: in a distillation without rewards a trajectory has no
// part of one.
func (x *index) score(e *entry) {
	if x.distils && e.Parts == 0 && e.Reward == 0 {
		e.Reward = math.NaN()
	}
}

// distillation says that the run is one.
func (x *index) distillation() {
	if x.distils {
		return
	}
	x.changes++
	x.distils = true
	x.alter(func(e *entry) bool { return e.Parts == 0 }, x.score)
}

// batch says what a step trains on.
func (x *index) batch(b store.Batch) {
	x.changes++
	if x.batches == nil {
		x.batches = map[store.GroupRef]store.Batch{}
	}
	groups := map[store.GroupRef]bool{}
	for _, ref := range b.Groups {
		x.batches[ref] = store.Batch{Step: b.Step, Version: b.Version}
		groups[ref] = true
	}
	x.trained(func(e *entry) bool { return groups[store.GroupRef{Step: e.Step, Group: e.Group}] })
}

// drop says that a group will not be trained.
func (x *index) drop(ref store.GroupRef) {
	x.changes++
	if x.dropped == nil {
		x.dropped = map[store.GroupRef]bool{}
	}
	x.dropped[ref] = true
	x.trained(func(e *entry) bool { return e.Step == ref.Step && e.Group == ref.Group })
}

// step says that a step is stored.
func (x *index) step(n int) {
	x.changes++
	if x.done == nil {
		x.done = map[int]bool{}
	}
	x.done[n] = true
	x.trained(func(e *entry) bool { return e.Phase == store.SFT && e.Step == n })
}

// trained says anew which step trained some entries, or that none will.
func (x *index) trained(which func(*entry) bool) { x.alter(which, x.train) }

// alter changes some entries.
func (x *index) alter(which func(*entry) bool, how func(*entry)) {
	for i, e := range x.entries {
		if which(e) {
			other := *e // answers that were given hold the old one
			how(&other)
			x.entries[i] = &other
		}
	}
}

// forget removes what a run that goes on at an earlier step makes again.
func (x *index) forget(from int) {
	x.changes++
	kept := x.entries[:0:0]
	x.place, x.texts, x.unread, x.ranked, x.values = map[string]int{}, 0, 0, ranking{}, nil
	for _, e := range x.entries {
		if e.Step >= from && !strings.HasPrefix(e.Phase, "eval-") {
			continue
		}
		x.place[e.ID] = len(kept)
		x.count(e, 1)
		x.offer(e)
		kept = append(kept, e)
	}
	x.entries = kept
	maps.DeleteFunc(x.done, func(step int, _ bool) bool { return step >= from })
	for ref, b := range x.batches {
		if b.Step >= from {
			delete(x.batches, ref)
		}
	}
	maps.DeleteFunc(x.dropped, func(ref store.GroupRef, _ bool) bool { return ref.Step >= from })
	x.alter(func(e *entry) bool { return e.TrainedAt >= from }, func(e *entry) { e.TrainedAt, e.Staleness = -1, -1 }) // sampled for a step before it
}

// filter says which entries are looked for, and in which order. Its zero value is all of them.
type filter struct {
	From, To     int // steps, To exclusive; 0: no end
	Phase, Task  string
	Group        int // -1: any
	Tool, Cause  string
	Stop, Origin string
	Ended        bool // just so: Stop, Origin, Tool and Cause are its end, "" too
	HasReward    bool
	RewardMin    float64
	RewardMax    float64
	MinStale     int
	Failed       bool
	FailedCall   bool // with a call that failed
	GoodCalls    bool // without one
	Text         string
	Sort         string
	Ascending    bool
}

func (f filter) keeps(e *entry) bool {
	step := store.Told(e.Phase, e.Step) - 1 // an evaluation after step 5 stands with the step 5 of people, which is 4 here
	switch {
	case step < f.From, f.To > 0 && step >= f.To,
		f.Phase != "" && e.Phase != f.Phase,
		f.Task != "" && e.Task != f.Task,
		f.Group >= 0 && e.Group != f.Group,
		f.Stop != "" && e.Stop != f.Stop,
		f.Origin != "" && e.Origin != f.Origin,
		f.HasReward && (!e.scored() || !(e.Reward >= f.RewardMin && e.Reward <= f.RewardMax)),
		f.MinStale > 0 && e.Staleness < f.MinStale,
		f.Failed && e.Origin == "",
		f.GoodCalls && e.failedCalls() > 0:
		return false
	}
	if f.Ended {
		return e.end() == end{f.Stop, f.Origin, f.Tool, f.Cause}
	}
	if f.Tool == "" && f.Cause == "" && !f.FailedCall {
		return true
	}
	return slices.ContainsFunc(e.Calls, func(c call) bool {
		return (f.Tool == "" || c.Tool == f.Tool) && (f.Cause == "" || c.Cause == f.Cause) && (!f.FailedCall || c.Cause != "")
	})
}

// sorts are the orders of a list.
var sorts = map[string]func(a, b *entry) int{
	"step":      func(a, b *entry) int { return cmp.Compare(a.when(), b.when()) },
	"task":      func(a, b *entry) int { return strings.Compare(a.Task, b.Task) },
	"reward":    func(a, b *entry) int { return cmp.Compare(a.Reward, b.Reward) },
	"turns":     func(a, b *entry) int { return cmp.Compare(a.Turns, b.Turns) },
	"tokens":    func(a, b *entry) int { return cmp.Compare(a.Tokens, b.Tokens) },
	"calls":     func(a, b *entry) int { return cmp.Compare(len(a.Calls), len(b.Calls)) },
	"staleness": func(a, b *entry) int { return cmp.Compare(a.Staleness, b.Staleness) },
	"seconds":   func(a, b *entry) int { return cmp.Compare(a.Seconds, b.Seconds) },
	"stop":      func(a, b *entry) int { return strings.Compare(a.Stop, b.Stop) },
}

// order is that of a list: every two entries differ in it. Trajectories without a reward stand at the end where it is sorted by it.
func (f filter) order() func(a, b *entry) int {
	by := sorts[f.Sort]
	return func(a, b *entry) int {
		if unpaid := !a.scored(); f.Sort == "reward" && unpaid == b.scored() {
			if unpaid {
				return 1
			}
			return -1
		} else if f.Sort == "reward" && unpaid {
			return tie(a, b)
		}
		c := by(a, b)
		if !f.Ascending {
			c = -c
		}
		if c != 0 {
			return c
		}
		return tie(a, b)
	}
}

// find returns the entries that a filter keeps, in its order. tasks are those whose text holds f.Text. The answer is not to be changed.
func (x *index) find(f filter, tasks map[string]bool) []*entry {
	if x.last.found != nil && x.last.changes == x.changes && x.last.filter == f {
		return x.last.found
	}
	needle, order := bytes.ToLower([]byte(f.Text)), x.ranked.of(x.entries)
	const parts = 4
	found := make([][]*entry, parts)
	var w sync.WaitGroup
	for p := range parts {
		w.Go(func() {
			for _, at := range order[len(order)*p/parts : len(order)*(p+1)/parts] {
				e := x.entries[at]
				if f.keeps(e) && (len(needle) == 0 || tasks[e.Task] || strings.Contains(e.ID, f.Text) || bytes.Contains(e.text, needle)) {
					found[p] = append(found[p], e)
				}
			}
		})
	}
	w.Wait()
	all := slices.Concat(found...)
	if all == nil {
		all = []*entry{}
	}
	all = sortedBy(all, f.Sort, f.Ascending)
	x.last.filter, x.last.changes, x.last.found = f, x.changes, all
	return all
}

// page is what follows an entry of a list; nil: its beginning.
func page(found []*entry, after *entry, order func(a, b *entry) int, most int) []*entry {
	from := 0
	if after != nil {
		at, same := slices.BinarySearchFunc(found, after, order)
		if from = at; same {
			from++
		}
	}
	return found[from:min(len(found), from+most)]
}

// toolSum is how the calls of one tool ended.
type toolSum struct {
	Tool    string         `json:"tool"`
	Calls   int            `json:"calls"`
	Failed  int            `json:"failed"`
	Causes  map[string]int `json:"causes"`
	Whys    []why          `json:"whys"`             // what failed calls said most
	Seconds num            `json:"seconds"`          // mean of a call
	Turned  *turning       `json:"turned,omitempty"` // since when it fails more, or less, over all steps; nil: it does not
	Trend   []num          `json:"trend"`            // share of failed calls over the steps, in parts of equal length; NaN without calls
}

// why is what some failed calls said.
type why struct {
	Cause string `json:"cause"`
	Text  string `json:"text"`
	Calls int    `json:"calls"`
}

// mostWhys is how many of them a tool shows.
const mostWhys = 3

// tools sums up the calls of the entries that a filter keeps, the tool with most failures first.
func toolsOf(found []*entry) []toolSum {
	type said struct{ tool, cause, text string }
	by, whys := map[string]*toolSum{}, map[said]int{}
	for _, e := range found {
		for _, c := range e.Calls {
			if c.Again {
				continue
			}
			s := by[c.Tool]
			if s == nil {
				s = &toolSum{Tool: c.Tool, Causes: map[string]int{}, Whys: []why{}}
				by[c.Tool] = s
			}
			if c.Why != "" {
				whys[said{c.Tool, c.Cause, c.Why}]++
			}
			s.Calls++
			s.Seconds += num(c.Seconds)
			if c.Cause != "" {
				s.Failed++
				s.Causes[c.Cause]++
			}
		}
	}
	for w, n := range whys {
		by[w.tool].Whys = append(by[w.tool].Whys, why{w.cause, w.text, n})
	}
	out := []toolSum{}
	for _, s := range by {
		slices.SortFunc(s.Whys, func(a, b why) int {
			return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Cause, b.Cause), strings.Compare(a.Text, b.Text))
		})
		s.Whys = s.Whys[:min(mostWhys, len(s.Whys))]
		s.Seconds /= num(s.Calls)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b toolSum) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Tool, b.Tool))
	})
	return out
}

// taskSum is how a task went, early and late.
type taskSum struct {
	Task   string `json:"task"`
	Tries  int    `json:"tries"`
	Before num    `json:"before"` // mean reward
	After  num    `json:"after"`
	Change num    `json:"change"`
}

// taskChanges are the tasks that got worse between two times, the one that lost most first.
type taskChanges struct {
	Compared int        `json:"compared"` // tasks that were tried at both
	Worse    int        `json:"worse"`
	Before   *evaluated `json:"before,omitempty"` // nil: they are times of training, or there are no two evaluations
	After    *evaluated `json:"after,omitempty"`
	Tasks    []taskSum  `json:"tasks"`
}

// evaluated is an evaluation: a run that goes on beyond its end has several of one phase.
type evaluated struct {
	Phase string `json:"phase"`
	Step  int    `json:"step"`
}

// compare orders evaluations as they were done: of one step, step-N comes before after.
func (e evaluated) compare(o evaluated) int {
	return cmp.Or(cmp.Compare(e.Step, o.Step), strings.Compare(o.Phase, e.Phase))
}

// trainedChanges compares the mean rewards of each task in the steps before one and from it on.
func trainedChanges(found []*entry, split int) taskChanges {
	return compared(found, func(e *entry) int {
		switch {
		case e.Phase != store.Train:
			return -1
		case e.Step < split:
			return 0
		}
		return 1
	})
}

// heldOutChanges compares the first evaluation of the job's held-out tasks with the last one, of those that ended, without those that switch the tools
// off.
func heldOutChanges(found []*entry, evals report.Evaluations) taskChanges {
	played := map[evaluated]bool{}
	for _, e := range found {
		if e.Phase != "eval-tool_off" && evals.Ended(e.Phase, e.Step) {
			played[evaluated{e.Phase, e.Step}] = true
		}
	}
	if len(played) < 2 {
		return taskChanges{Tasks: []taskSum{}}
	}
	order := slices.SortedFunc(maps.Keys(played), evaluated.compare)
	before, after := order[0], order[len(order)-1]
	out := compared(found, func(e *entry) int {
		switch (evaluated{e.Phase, e.Step}) {
		case before:
			return 0
		case after:
			return 1
		}
		return -1
	})
	out.Before, out.After = &before, &after
	return out
}

// compared compares the mean rewards of each task at two times, 0 and 1; entries of -1 are of neither. Trajectories without a reward do not count.
func compared(found []*entry, when func(*entry) int) taskChanges {
	type half struct {
		sum float64
		n   int
	}
	by := map[string]*[2]half{}
	for _, e := range found {
		k := when(e)
		if k < 0 || !e.scored() {
			continue
		}
		s := by[e.Task]
		if s == nil {
			s = &[2]half{}
			by[e.Task] = s
		}
		s[k].sum += e.Reward
		s[k].n++
	}
	out := taskChanges{Tasks: []taskSum{}}
	for task, s := range by {
		if s[0].n == 0 || s[1].n == 0 {
			continue
		}
		out.Compared++
		if a, b := s[0].sum/float64(s[0].n), s[1].sum/float64(s[1].n); b < a {
			out.Tasks = append(out.Tasks, taskSum{task, s[0].n + s[1].n, num(a), num(b), num(b - a)})
		}
	}
	slices.SortFunc(out.Tasks, func(a, b taskSum) int {
		return cmp.Or(cmp.Compare(a.Change, b.Change), strings.Compare(a.Task, b.Task))
	})
	const most = 100
	out.Worse = len(out.Tasks)
	out.Tasks = out.Tasks[:min(most, out.Worse)]
	return out
}

// drawnTasks compares what a step earned with what its own tasks earned in so many steps before: where those were low, the step drew hard tasks.
type drawnTasks struct {
	Tasks  int `json:"tasks"`
	Known  int `json:"known"`  // that were tried in the steps before
	Mean   num `json:"mean"`   // reward of the known ones at the step
	Before num `json:"before"` // the mean of theirs in the steps before
}

// drawn is about the tasks of a step. Each known task counts once. Trajectories without a reward do not count.
func (x *index) drawn(step, span int) drawnTasks {
	type sums struct {
		now, before   float64
		tries, trials int
	}
	by := map[string]*sums{}
	counts := func(e *entry) bool { return e.Phase == store.Train && e.scored() }
	for _, e := range x.entries {
		if e.Step == step && counts(e) {
			if by[e.Task] == nil {
				by[e.Task] = &sums{}
			}
			by[e.Task].now += e.Reward
			by[e.Task].tries++
		}
	}
	for _, e := range x.entries {
		if s := by[e.Task]; s != nil && e.Step < step && e.Step >= step-span && counts(e) {
			s.before += e.Reward
			s.trials++
		}
	}
	out := drawnTasks{Tasks: len(by)}
	var now, before float64
	for _, s := range by {
		if s.trials > 0 {
			out.Known++
			now += s.now / float64(s.tries)
			before += s.before / float64(s.trials)
		}
	}
	out.Mean, out.Before = num(now/float64(out.Known)), num(before/float64(out.Known)) // NaN, null, without any
	return out
}

// tries sums up the entries of one task by the step or evaluation that sampled them, in their order; the last ones of many.
func tries(same []*entry) []shownTry {
	slices.SortFunc(same, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), strings.Compare(a.Phase, b.Phase), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index), strings.Compare(a.ID, b.ID))
	})
	out := []shownTry{}
	for len(same) > 0 {
		first := same[0]
		n := 1
		for n < len(same) && same[n].Step == first.Step && same[n].Phase == first.Phase && same[n].Group == first.Group {
			n++
		}
		try := shownTry{Phase: first.Phase, Step: first.Step, Group: first.Group, Tries: n, First: first.ID}
		sum, ended := 0.0, 0
		for _, e := range same[:n] {
			if e.scored() {
				sum += e.Reward
				ended++
			}
		}
		if ended > 0 {
			mean := num(sum / float64(ended))
			try.Mean = &mean
		}
		out, same = append(out, try), same[n:]
	}
	const most = 500
	return out[max(0, len(out)-most):]
}
