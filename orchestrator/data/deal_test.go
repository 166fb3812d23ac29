package data

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

func TestTurns(t *testing.T) {
	require.Equal(t, []int{0}, turns([]int{7}))
	require.Equal(t, []int{0, 1, 2}, turns([]int{1, 1, 1}))
	require.Equal(t, []int{0, 0, 1, 0}, turns([]int{3, 1}), "weight/(2·given+1): 3 1, 1 1, 3/5 1, 3/5 1/3")
	require.Equal(t, []int{0, 1, 0}, turns([]int{500, 250}), "without common factors")
	require.Equal(t, []int{0, 1, 0, 0, 2, 0, 1, 0}, turns([]int{5, 2, 1}))
}

// Each source has its share of any number of positions, up to one and a half tasks.
func TestSharesOfAMixture(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		weights, sources, total := []int{}, []Tasks{}, 0
		for k := range 1 + r.IntN(5) {
			weights, sources = append(weights, 1+r.IntN(12)), append(sources, Tasks{Tasks: numberedFrom(fmt.Sprint("s", k, "/"), 1+r.IntN(20))})
			total += weights[k]
		}
		m := newMixture(sources, weights)
		given := make([]int, len(weights))
		for at := range 300 {
			k, in := m.place(at)
			require.Equal(t, given[k], in, "a source's own positions come in order, without a gap")
			given[k]++
			require.Equal(t, given, m.counts(at+1))
			for k, w := range weights {
				require.InDelta(t, float64((at+1)*w)/float64(total), given[k], 1.5)
			}
		}
	}
}

// A task of an epoch that has begun is dealt without another shuffle of all tasks, also where two epochs are dealt from by turns, and it is the one that
// the epoch's permutation has there.
func TestAnEpochIsShuffledOnce(t *testing.T) {
	const n = 10_000
	data := &Tasks{Tasks: numberedFrom("", n)}
	for i := range data.Tasks {
		data.Tasks[i].Fields["kind"] = string(rune('a' + i%2))
	}
	for name, d := range map[string]job.Data{"plain": {}, "balance": {Balance: "kind"}, "spread": {Spread: "kind"}} {
		t.Run(name, func(t *testing.T) {
			s, err := NewDealer(data, d, 2, 3)
			require.NoError(t, err)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range 100 {
				s.Task(0, n-1-i)
				s.Task(len(s.Strata)-1, n+i)
			}
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3*8*n), "bytes: the two permutations have 16n")
		})
	}
	s, err := NewDealer(data, job.Data{}, 1, 3)
	require.NoError(t, err)
	for _, at := range []int{0, n, 1, n + 1, 5*n + 7, 2, 5*n + 8, n + 2} {
		require.Equal(t, fmt.Sprint(permutation(3, 0, at/n).Perm(n)[at%n]), s.Task(0, at).ID, at)
	}
}

func numberedFrom(prefix string, n int) (out []trajectory.Task) {
	for i := range n {
		out = append(out, trajectory.Task{ID: fmt.Sprint(prefix, i), Fields: map[string]any{"answer": "1"}})
	}
	return out
}

// sourcesOf makes data of several sources, each with so many tasks.
func sourcesOf(sizes map[string]int, names ...string) *Tasks {
	out := &Tasks{}
	for _, name := range names {
		s := Tasks{Name: name, Tasks: numberedFrom(name+"/", sizes[name])}
		out.Sources, out.Tasks = append(out.Sources, s), append(out.Tasks, s.Tasks...)
	}
	return out
}

func TestAMixtureDealsEachSourceThroughEpochsOfItsOwn(t *testing.T) {
	data := sourcesOf(map[string]int{"a": 6, "b": 4}, "a", "b")
	d := job.Data{Train: job.Sources{{Name: "a", Weight: 3}, {Name: "b", Weight: 1}}}
	s, err := NewDealer(data, d, 4, 1)
	require.NoError(t, err)
	require.Len(t, s.Strata, 1)
	bySource := map[string][]string{}
	var all []string
	for step := range 12 {
		count := map[string]int{}
		for _, task := range s.Tasks(step, 4) {
			name, _, _ := strings.Cut(task.ID, "/")
			count[name]++
			bySource[name], all = append(bySource[name], task.ID), append(all, task.ID)
		}
		require.Equal(t, map[string]int{"a": 3, "b": 1}, count, "of every four tasks three are from a")
	}
	for epoch := range 6 {
		require.ElementsMatch(t, ids(data.Sources[0].Tasks), bySource["a"][epoch*6:epoch*6+6])
	}
	for epoch := range 3 {
		require.ElementsMatch(t, ids(data.Sources[1].Tasks), bySource["b"][epoch*4:epoch*4+4])
	}
	again, err := NewDealer(data, d, 4, 1)
	require.NoError(t, err)
	for at := 47; at >= 0; at-- { // a position does not depend on what was dealt before
		require.Equal(t, all[at], again.Task(0, at).ID)
	}
}

func ids(tasks []trajectory.Task) (out []string) {
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	return out
}

func TestSourcesAreReadAndNamed(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.jsonl":    `{"id": "1", "prompt": "a1?", "answer": "1"}` + "\n" + `{"id": "2", "prompt": "a2?", "answer": "1"}`,
		"b.json":     `[{"id": "1", "question": "b1?", "answer": "1"}]`,
		"eval.jsonl": `{"id": "1", "prompt": "e?", "answer": "1"}`,
		"same.jsonl": `{"id": "1", "prompt": "a2?", "answer": "1"}`,
		"none.jsonl": `{"id": "1", "prompt": "n?"}`,
		"own.jsonl":  `{"id": "1", "prompt": "o?", "answer": "1", "source": "web"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	read := func(data string) (*Tasks, *Tasks, error) {
		text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: " + data
		j, err := job.Parse(filepath.Join(dir, "x.yaml"), []byte(text), job.Options{})
		require.NoError(t, err)
		train, eval, _, err := Read(j, nil)
		return train, eval, err
	}
	train, eval, err := read("{train: [a.jsonl, {path: b.json, name: c, columns: {prompt: question}}], eval: eval.jsonl}")
	require.NoError(t, err)
	require.Equal(t, []string{"a/1", "a/2", "c/1"}, ids(train.Tasks))
	require.Equal(t, "c", train.Tasks[2].Fields["source"])
	require.Equal(t, []trajectory.Message{trajectory.Text("user", "b1?")}, train.Tasks[2].Prompt)
	require.Equal(t, []string{"1"}, ids(eval.Tasks), "one source is as it was")
	require.NotContains(t, eval.Tasks[0].Fields, "source")

	_, eval, err = read("{train: a.jsonl, eval: [eval.jsonl, {path: b.json, columns: {prompt: question}}]}\neval: {tasks: 1}")
	require.NoError(t, err)
	require.Equal(t, []string{"eval/1", "b/1"}, ids(eval.Tasks), "the first of each file")
	_, _, err = read("{train: [a.jsonl, none.jsonl], curriculum: {by: success_rate}}")
	require.ErrorContains(t, err, `task "none/1" has no answer, so data.curriculum cannot tell a success; set data.success`)

	files := train.Files("train")
	require.Equal(t, []string{"train/a", "train/c"}, []string{files[0].Name, files[1].Name})
	began, err := SameFiles("runs/x", nil, files)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"train/a": train.Sources[0].Hash, "train/c": train.Sources[1].Hash}, began)
	_, err = SameFiles("runs/x", began, files)
	require.NoError(t, err)
	files[1].Hash = "other"
	_, err = SameFiles("runs/x", began, files)
	require.ErrorContains(t, err, "b.json is not the file that the run in runs/x began with")
	_, err = SameFiles("runs/x", began, files[:1])
	require.ErrorContains(t, err, "data.train: the run in runs/x began with train/a, train/c, not with train/a; give it back its sources")

	// what is evaluated may come, go and come back, as it was
	files[1].Hash = began["train/c"]
	held := []File{{Name: "eval", Path: "eval.jsonl", Hash: "e"}}
	evaluated, err := SameFiles("runs/x", began, append(files, held...))
	require.NoError(t, err, "a run that evaluated nothing, or one of an older program")
	require.Equal(t, map[string]string{"train/a": began["train/a"], "train/c": began["train/c"], "eval": "e"}, evaluated)
	without, err := SameFiles("runs/x", evaluated, files)
	require.NoError(t, err)
	require.Equal(t, evaluated, without, "its evaluations are still there")
	held[0].Hash = "other"
	_, err = SameFiles("runs/x", without, append(files, held...))
	require.ErrorContains(t, err, "eval.jsonl is not the file that the run in runs/x began with")
	held[0].Name = "eval/a"
	_, err = SameFiles("runs/x", without, append(files, held...))
	require.ErrorContains(t, err, "data.eval: the run in runs/x began with eval, not with eval/a; give it back its sources")

	_, _, err = read("{train: [a.jsonl, b.json]}")
	require.ErrorContains(t, err, `b.json:1: the column "prompt" is missing`)
	_, _, err = read("{train: [a.jsonl, own.jsonl]}")
	require.ErrorContains(t, err, `own.jsonl: task "1" has a field source (web) and comes from the source "own"; rename the column`)
	_, _, err = read("{train: [{path: b.json, columns: {prompt: question}}, a.jsonl], eval: [eval.jsonl, same.jsonl]}")
	require.ErrorContains(t, err, `task "same/1" has the same content as task "a/2"`)
	_, _, err = read("{train: [a.jsonl, eval.jsonl], balance: source}")
	require.NoError(t, err)
}

// A run deals the same whether it was resumed at any step or not, with every curriculum, and no task comes twice in an epoch.
func TestTheDealOfACurriculumIsResumedExactly(t *testing.T) {
	type point struct { // what a checkpoint keeps
		Step       int
		Dealt      []int
		Curriculum *CurriculumState
	}
	for _, by := range []string{"difficulty", "success_rate", "mask_count"} {
		for seed := range uint64(8) {
			r := rand.New(rand.NewPCG(seed, 9))
			sizes := map[string]int{"a": 3 + r.IntN(8), "b": 2 + r.IntN(5)}
			data := sourcesOf(sizes, "a", "b")
			for i := range data.Tasks { // Fields are shared with the sources
				data.Tasks[i].Fields["level"] = json.Number(fmt.Sprint(r.IntN(4)))
			}
			d := job.Data{Curriculum: &job.Curriculum{By: by, Field: "level", Epochs: 2}, Train: job.Sources{{Name: "a", Weight: 1 + r.IntN(3)}, {Name: "b"}}}
			const steps, groups = 12, 5
			ahead := 0 // tasks that an interrupted step was dealt
			deal := func(at *point, until int) (out []string) {
				s, err := NewDealer(data, d, groups, seed)
				require.NoError(t, err)
				at.Curriculum = s.Resume(at.Curriculum, at.Step, at.Dealt)
				for ; at.Step < until; at.Step++ {
					dealt := s.Positions(at.Dealt, at.Step, groups)
					var batch []trajectory.Group
					for range groups {
						task := s.Task(0, dealt[0])
						dealt[0]++
						out = append(out, task.ID)
						batch = append(batch, outcomeOf(task, at.Step))
					}
					at.Dealt = dealt
					s.Observe(batch, dealt)
				}
				for i := range ahead {
					s.Task(0, at.Dealt[0]+i)
				}
				return out
			}
			whole := deal(&point{}, steps)
			for cut := 1; cut < steps; cut++ {
				first := &point{}
				ahead = r.IntN(groups + 1)
				got := deal(first, cut)
				ahead = 0
				saved, err := json.Marshal(first)
				require.NoError(t, err)
				second := &point{}
				require.NoError(t, json.Unmarshal(saved, second))
				require.Equal(t, whole, append(got, deal(second, steps)...), "%s, seed %d, resumed after %d steps", by, seed, cut)
			}
		}
	}
}

// outcomeOf is a group of a task, with a success rate and lengths that depend on the task and the step alone.
func outcomeOf(task trajectory.Task, step int) trajectory.Group {
	r := rand.New(rand.NewPCG(uint64(len(task.ID))*31+uint64(task.ID[len(task.ID)-1]), uint64(step)))
	g := trajectory.Group{Task: task}
	for range 4 {
		answer := "0"
		if r.IntN(3) == 0 {
			answer = "1"
		}
		s := &trajectory.Sample{}
		n := 1 + r.IntN(9)
		_ = s.AppendResponse(make([]int32, n), make([]float32, n), make([]int32, n))
		g.Trajectories = append(g.Trajectories, &trajectory.Trajectory{
			Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{{FinalAnswer: answer, AnsweredThisTurn: true}},
		})
	}
	return g
}

// A run that goes on with other weights deals each source on where it was: no task comes twice in an epoch, and none is left out.
func TestOtherWeightsGoOnInTheEpochsOfTheSources(t *testing.T) {
	data := sourcesOf(map[string]int{"a": 40, "b": 40}, "a", "b")
	bySource := map[string][]string{}
	deal := func(from, to int, was []Weights, a, b int) (now []Weights) {
		s, err := NewDealer(data, job.Data{Train: job.Sources{{Name: "a", Weight: a}, {Name: "b", Weight: b}}}, 4, 1)
		require.NoError(t, err)
		now = s.Reweigh(was, from)
		for at := from; at < to; at++ {
			task := s.Task(0, at)
			name, _, _ := strings.Cut(task.ID, "/")
			bySource[name] = append(bySource[name], task.ID)
		}
		require.Equal(t, []int{len(bySource["a"]), len(bySource["b"])}, s.reached([]int{to}), "as a curriculum counts them")
		return now
	}
	first := deal(0, 40, nil, 3, 1)
	require.Equal(t, []Weights{{0, []int{3, 1}}}, first)
	second := deal(40, 50, first, 1, 1)
	require.Equal(t, []Weights{{0, []int{3, 1}}, {40, []int{1, 1}}}, second)
	require.Equal(t, second, deal(50, 53, second, 1, 1), "resumed with the same")
	require.Equal(t, []Weights{{0, []int{3, 1}}, {40, []int{1, 1}}, {53, []int{1, 4}}}, deal(53, 53, second, 1, 4))
	third := deal(53, 110, []Weights{{0, []int{3, 1}}, {40, []int{1, 1}}, {53, []int{1, 4}}}, 1, 3)
	require.Equal(t, []Weights{{0, []int{3, 1}}, {40, []int{1, 1}}, {53, []int{1, 3}}}, third, "the weights of before dealt nothing")
	deal(110, 160, third, 1, 1)
	for name, dealt := range bySource {
		for len(dealt) > 0 {
			n := min(40, len(dealt))
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(dealt[:n]))), n, "%s: each task once in an epoch", name)
			dealt = dealt[n:]
		}
	}
}
