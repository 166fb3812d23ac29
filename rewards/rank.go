package rewards

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// attempts say where the scores of a trajectory's attempts are found.
type attempts struct {
	Of      any    `json:"of"`      // a reward that scores the trajectory as it was after each turn; or
	Pattern string `json:"pattern"` // a regular expression whose group is the score in an observation; default score: NUMBER
	Info    string `json:"info"`    // in place of a pattern: the key of the score in what a tool returns beside its observation
	Tool    string `json:"tool"`    // only results of this tool; default all
	Lower   bool   `json:"lower"`   // a lower score is better
}

const defaultScore = `(?i)score["']?\s*[:=]\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)`

// reader makes the function that reads the scores, in their order. of are the rewards that it asks.
func (a attempts) reader(b *Builder) (scores func(ctx context.Context, in Input) ([]float64, error), of []Reward, err error) {
	if a.Of != nil {
		if a.Pattern != "" || a.Info != "" || a.Tool != "" {
			return nil, nil, errors.New("of gives the scores; leave pattern, info and tool out")
		}
		r, err := b.nested("of", a.Of)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, in Input) ([]float64, error) { return prefixes(ctx, r, in) }, []Reward{r}, nil
	}
	if a.Info != "" {
		if a.Pattern != "" {
			return nil, nil, errors.New("info gives the scores; leave pattern out")
		}
		return func(_ context.Context, in Input) ([]float64, error) {
			return resultScores(in.Trajectory, a.Tool, func(r trajectory.ToolResult) (float64, bool) { return infoScore(r, a.Info) }), nil
		}, nil, nil
	}
	if a.Pattern == "" {
		a.Pattern = defaultScore
	}
	re, err := regexp.Compile(a.Pattern)
	if err != nil {
		return nil, nil, fmt.Errorf("the parameter pattern: %w", err)
	}
	if re.NumSubexp() != 1 {
		return nil, nil, fmt.Errorf("the parameter pattern has %d groups; it needs one, around the score", re.NumSubexp())
	}
	return func(_ context.Context, in Input) ([]float64, error) {
		return resultScores(in.Trajectory, a.Tool, func(r trajectory.ToolResult) (float64, bool) { return observedScore(r, re) }), nil
	}, nil, nil
}

// prefixes scores the trajectory as it was after each of its turns. What was posted is posted for the trajectory, whichever turns it has; the
// environment is what the last turn left.
func prefixes(ctx context.Context, r Reward, in Input) ([]float64, error) {
	out := make([]float64, 0, len(in.Trajectory.Turns))
	for i := range in.Trajectory.Turns {
		then := in
		if i+1 < len(in.Trajectory.Turns) {
			so := *in.Trajectory
			so.Turns, so.Samples = so.Turns[:i+1:i+1], so.SamplesAfter(i+1)
			then.Trajectory, then.Episode = &so, nil
		}
		s, err := run(ctx, r, then)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", i, err)
		}
		out = append(out, s.Value)
	}
	return out, nil
}

// resultScores are the scores of the results of calls that succeeded. What an answering tool returns is the answer, which the policy wrote: it counts
// where the tool is named alone.
func resultScores(t *trajectory.Trajectory, tool string, score func(r trajectory.ToolResult) (float64, bool)) []float64 {
	var out []float64
	for _, turn := range t.Turns {
		for _, r := range turn.Results {
			if r.Failed || tool == "" && r.Terminal || tool != "" && r.Call.Name != tool {
				continue
			}
			if v, ok := score(r); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
				out = append(out, v)
			}
		}
	}
	return out
}

// observedScore is the last number that the pattern finds in an observation.
func observedScore(r trajectory.ToolResult, re *regexp.Regexp) (float64, bool) {
	all := re.FindAllStringSubmatch(r.Observation, -1)
	if len(all) == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(all[len(all)-1][1], 64)
	return v, err == nil
}

func infoScore(r trajectory.ToolResult, key string) (float64, bool) {
	var info map[string]any
	if len(r.Info) == 0 || json.Unmarshal(r.Info, &info) != nil {
		return 0, false
	}
	v, ok := info[key].(float64)
	return v, ok
}

// better tells whether a score beats another.
func (a attempts) better(x, y float64) bool {
	if a.Lower {
		return x < y
	}
	return x > y
}

// best is the best score so far.
func (a attempts) best(scores []float64) float64 {
	out := scores[0]
	for _, s := range scores[1:] {
		if a.better(s, out) {
			out = s
		}
	}
	return out
}

type humanRankParams struct {
	attempts
	Field string `json:"field"` // of the task that holds a leaderboard: a list of scores, or a list of such lists; default leaderboard
}

var _ = declareReward("human_rank", newHumanRank, "share of a human leaderboard that the best score is not worse than")

// newHumanRank makes human_rank, from 0 to 1: the share of a human leaderboard that the trajectory's best score is not worse than,
// (N − p + 1)/N with p the place that the score would take among N, before those it ties with; 0 without a score. With several
// leaderboards (a public and a private one) it is their mean. This is the HumanRank score of MLE-Dojo (arXiv 2505.07782; public code,
// mledojo/gym/interface.py). The parts are the score and, of one leaderboard, the place.
func newHumanRank(b *Builder, params map[string]any) (Reward, error) {
	p := humanRankParams{Field: "leaderboard"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	scores, of, err := p.reader(b)
	if err != nil {
		return nil, err
	}
	return needs(func(task trajectory.Task) error {
		_, err := leaderboards(task, p.Field)
		return cmp.Or(err, firstWrong(task, of))
	}, NewFuncParts("human_rank", func(ctx context.Context, in Input) (Score, error) {
		boards, err := leaderboards(in.Task, p.Field)
		if err != nil {
			return Score{}, err
		}
		all, err := scores(ctx, in)
		if err != nil || len(all) == 0 {
			return Score{}, err
		}
		best := p.best(all)
		out := Score{0, map[string]float64{"score": best}}
		for _, board := range boards {
			beaten := 0
			for _, human := range board {
				if !p.better(human, best) {
					beaten++
				}
			}
			out.Value += float64(beaten) / float64(len(board)) / float64(len(boards))
			if len(boards) == 1 {
				out.Parts["place"] = float64(len(board) - beaten + 1)
			}
		}
		return out, nil
	})), nil
}

func leaderboards(task trajectory.Task, name string) ([][]float64, error) {
	list, ok := task.Fields[name].([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("task %q: the field %q must be a list of scores that is not empty", task.ID, name)
	}
	if _, nested := list[0].([]any); !nested {
		list = []any{list}
	}
	var out [][]float64
	for i, board := range list {
		items, ok := board.([]any)
		if !ok || len(items) == 0 {
			return nil, fmt.Errorf("task %q: %s[%d] must be a list of scores that is not empty", task.ID, name, i)
		}
		scores := make([]float64, len(items))
		for j, item := range items {
			text, _ := scalar(item)
			v, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("task %q: %s[%d][%d] is no number", task.ID, name, i, j)
			}
			scores[j] = v
		}
		out = append(out, scores)
	}
	return out, nil
}

type bestDeltaParams struct {
	attempts
	Field string   `json:"field"` // of the task that holds the score to begin with
	Start *float64 `json:"start"` // the score to begin with, of all tasks; default: the first attempt's
}

var _ = declareReward("best_delta", newBestDelta, "what the trajectory's attempts improved on its start")

// newBestDelta makes best_delta, 0 or more: the sum over attempts t of max(0, s_t − best_{t−1}), where best_{t−1} is the best of the start
// and of the scores before t; with lower, of max(0, best_{t−1} − s_t). An attempt earns what it improves on the best so far, and one
// that is worse costs nothing: the sum is the distance from the start to the best. Without a start the first attempt sets it and
// earns nothing. The parts are the best score and the number of improvements.
func newBestDelta(b *Builder, params map[string]any) (Reward, error) {
	var p bestDeltaParams
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Field != "" && p.Start != nil {
		return nil, errors.New("field and start both give the score to begin with; leave one out")
	}
	scores, of, err := p.reader(b)
	if err != nil {
		return nil, err
	}
	return needs(func(task trajectory.Task) error {
		_, err := p.start(task)
		return cmp.Or(err, firstWrong(task, of))
	}, NewFuncParts("best_delta", func(ctx context.Context, in Input) (Score, error) {
		all, err := scores(ctx, in)
		if err != nil {
			return Score{}, err
		}
		start, err := p.start(in.Task)
		if err != nil {
			return Score{}, err
		}
		if start == nil {
			if len(all) == 0 {
				return Score{Parts: map[string]float64{"improvements": 0}}, nil
			}
			start, all = &all[0], all[1:]
		}
		best, value, improvements := *start, 0.0, 0
		for _, s := range all {
			if p.better(s, best) {
				value += math.Abs(s - best)
				best = s
				improvements++
			}
		}
		return Score{value, map[string]float64{"best": best, "improvements": float64(improvements)}}, nil
	})), nil
}

func (p bestDeltaParams) start(task trajectory.Task) (*float64, error) {
	if p.Field == "" {
		return p.Start, nil
	}
	text, err := field(task, p.Field)
	if err != nil {
		return nil, err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("task %q: the field %q is no number", task.ID, p.Field)
	}
	return &v, nil
}
