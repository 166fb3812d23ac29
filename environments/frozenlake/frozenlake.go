// Package frozenlake is Gymnasium's FrozenLake as an environment of texts: the agent crosses a frozen lake with holes, from the upper left corner to the
// lower right one. Maps are generated as Gymnasium's generate_random_map does: each field is frozen with a probability, and a map without a way is
// thrown away. The reward is 1 at the goal and 0 otherwise. The episode is cut after the parameter steps, which count what is no action also.
//
// The parameter progress pays a part of that 1 on the way: a step that comes nearer to the goal earns its share of the shortest way from the start, and
// a step back costs as much. The goal brings the rest, so that an episode that reaches it is worth 1 however it got there, and every other one less:
// on firm ice a policy is best with progress where it is best without. Whether the goal was reached (success) does not depend on it.
//
// On slippery ice each step goes where it should, or to one of both sides, with equal probability. The slips are fixed by the seed of the episode, so
// that the same seed and actions give the same episode. Where no way leads to the goal with the slips of a seed, the next slips that have one are taken.
//
// A random policy of 50 steps at most reaches the goal in 0.015 of the episodes at size 4, in 0.04 on slippery ice (TestConformance logs it).
//
// It does not lend environments or hold deadlines: package environments does.
package frozenlake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

// Params are the parameters in a job.
type Params struct {
	Size     int     `json:"size"`     // of the square lake, 3 to 12; 4
	Frozen   float64 `json:"frozen"`   // probability that a field is no hole, 0.5 to 0.95; 0.8
	Slippery bool    `json:"slippery"` // false
	Steps    int     `json:"steps"`    // of an episode, from the number of fields to 1000; 100
	Progress float64 `json:"progress"` // part of the reward that is paid for coming nearer to the goal, 0 to 0.9; 0
}

// Kind is the kind "frozenlake".
func Kind() environments.Kind {
	return environments.KindOf("frozenlake", "crosses a generated frozen lake with holes (size, frozen, slippery, steps, progress)", Params{Size: 4, Frozen: 0.8, Steps: 100}, New)
}

// New is the source of maps with these parameters.
func New(p Params) (environments.Source, error) {
	switch {
	case p.Size < 3 || p.Size > 12:
		return nil, fmt.Errorf("size is %d, and must be 3 to 12", p.Size)
	case !(p.Frozen >= 0.5 && p.Frozen <= 0.95):
		return nil, fmt.Errorf("frozen is %v, and must be 0.5 to 0.95", p.Frozen)
	case p.Steps < p.Size*p.Size || p.Steps > 1000:
		return nil, fmt.Errorf("steps is %d, and must be %d, which is the number of fields, to 1000", p.Steps, p.Size*p.Size)
	case !(p.Progress >= 0 && p.Progress <= 0.9):
		return nil, fmt.Errorf("progress is %v, and must be 0 to 0.9", p.Progress)
	}
	id, text := fmt.Sprintf("frozenlake-%dx%g", p.Size, p.Frozen),
		"You cross a frozen lake. Go from S to G over frozen fields (F); a hole (H) ends it. P is where you are.\nThe actions are: left, down, right, up."
	if p.Slippery {
		id += "-slippery"
		text += " The ice is slippery: you may slip to a side of where you want to go."
	}
	return environments.Levels(environments.Spec{Deterministic: true, Instructions: text}, id,
		func() environments.Environment { return &world{p: p} },
		func(level int64) string { return string(generate(p, level)) }), nil
}

var (
	_ environments.Stater  = (*world)(nil)
	_ environments.Forker  = (*world)(nil)
	_ environments.Chooser = (*world)(nil)
	_ environments.Solver  = (*world)(nil)
)

var names = []string{"left", "down", "right", "up"} // in Gymnasium's order: those beside one are its sides

// move is where a step ends that goes in a direction.
func move(size, at, direction int) int {
	x, y := at%size, at/size
	switch direction {
	case 0:
		x = max(0, x-1)
	case 1:
		y = min(size-1, y+1)
	case 2:
		x = min(size-1, x+1)
	case 3:
		y = max(0, y-1)
	}
	return y*size + x
}

// generate makes a map with a way: S, F, H and G, by y*size+x.
func generate(p Params, number int64) []byte {
	source := rand.New(rand.NewPCG(uint64(number), uint64(p.Size)))
	for {
		lake := make([]byte, p.Size*p.Size)
		for i := range lake {
			lake[i] = 'H'
			if source.Float64() < p.Frozen {
				lake[i] = 'F'
			}
		}
		lake[0], lake[len(lake)-1] = 'S', 'G'
		if way(p.Size, lake, 0, len(lake), func(int) int { return 0 }) != nil {
			return lake
		}
	}
}

// way is a shortest list of directions from a field to the goal in a number of steps at most; nil: there is none. slip says how far from its direction
// the step of a number goes.
func way(size int, lake []byte, from, steps int, slip func(step int) int) []int {
	type node struct{ at, step int }
	return environments.Shortest(node{from, 0}, len(names),
		func(n node) bool { return lake[n.at] == 'G' },
		func(n node, d int) (node, bool) {
			return node{move(size, n.at, (d+slip(n.step)+4)%4), n.step + 1}, lake[n.at] != 'H' && n.step < steps
		})
}

// world is one lake.
type world struct {
	p      Params
	lake   []byte // never changed
	seed   int64
	at     int
	steps  int
	wasted int // of the steps: no action, so that nothing slipped
}

func (w *world) Reset(_ context.Context, s environments.Start) (environments.Observation, error) {
	number, err := environments.LevelOf(s)
	if err != nil {
		return nil, err
	}
	w.lake, w.seed, w.at, w.steps, w.wasted = generate(w.p, number), s.Seed, 0, 0, 0
	if w.p.Slippery && w.solve() == nil { // such slips are none of this episode
		for w.seed = s.Seed + 1<<32; w.solve() == nil; w.seed += 1 << 32 {
		}
	}
	return environments.Text(w.draw()), nil
}

// slip is how far a step goes beside its direction: -1, 0 or 1.
func (w *world) slip(step int) int {
	if !w.p.Slippery {
		return 0
	}
	return rand.New(rand.NewPCG(uint64(w.seed), uint64(step))).IntN(3) - 1
}

func (w *world) solve() []int {
	return way(w.p.Size, w.lake, w.at, w.p.Steps-w.steps, func(step int) int { return w.slip(w.steps - w.wasted + step) })
}

func (w *world) draw() string {
	var b strings.Builder
	for i, f := range w.lake {
		if i == w.at {
			f = 'P'
		}
		b.WriteByte(f)
		if i%w.p.Size == w.p.Size-1 && i+1 < len(w.lake) {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (w *world) Step(_ context.Context, a environments.Action) (environments.Result, error) {
	d := environments.ActionOf(names, a.Text)
	if d < 0 {
		w.steps++
		w.wasted++
		return environments.Result{
			Observation: environments.Text("That is no action. The actions are: left, down, right, up.\n" + w.draw()),
			Anchor:      w.draw(), Failure: trajectory.FailurePolicy, Truncated: w.steps >= w.p.Steps,
		}, nil
	}
	from := w.at
	w.at = move(w.p.Size, w.at, (d+w.slip(w.steps-w.wasted)+4)%4)
	w.steps++
	r := environments.Result{Anchor: w.draw(), Reward: w.nearer(from)}
	text := r.Anchor
	switch w.lake[w.at] {
	case 'G':
		r.Reward, r.Terminated, r.Success = r.Reward+1-w.p.Progress, true, true
		text += "\nYou reached the goal."
	case 'H':
		r.Terminated = true
		text += "\nYou fell into a hole."
	}
	r.Truncated = !r.Terminated && w.steps >= w.p.Steps
	r.Observation = environments.Text(text)
	return r, nil
}

// nearer is what the step from a field to the present one earns by the parameter progress.
func (w *world) nearer(from int) float64 {
	if w.p.Progress == 0 || w.lake[w.at] == 'H' {
		return 0
	}
	far := func(at int) int { return len(way(w.p.Size, w.lake, at, len(w.lake), func(int) int { return 0 })) }
	return w.p.Progress * float64(far(from)-far(w.at)) / float64(far(0))
}

func (w *world) Close() error { return nil }

// Actions are all directions: none of them is ever impossible.
func (w *world) Actions(context.Context) ([]string, error) { return slices.Clone(names), nil }

func (w *world) Solution(context.Context) ([]environments.Action, error) {
	moves := w.solve()
	if moves == nil {
		return nil, errors.New("the goal cannot be reached any more")
	}
	return environments.Texts(names, moves), nil
}

type kept struct {
	At     int `json:"at"`
	Steps  int `json:"steps"`
	Wasted int `json:"wasted,omitempty"`
}

func (w *world) State(context.Context) (json.RawMessage, error) {
	return json.Marshal(kept{w.at, w.steps, w.wasted})
}

func (w *world) Restore(_ context.Context, data json.RawMessage) error {
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return fmt.Errorf("the state cannot be read: %w", err)
	}
	if k.At < 0 || k.At >= len(w.lake) || k.Steps < 0 || k.Wasted < 0 || k.Wasted > k.Steps {
		return errors.New("the state is of another map")
	}
	w.at, w.steps, w.wasted = k.At, k.Steps, k.Wasted
	return nil
}

func (w *world) Fork(context.Context) (environments.Environment, error) {
	second := *w
	return &second, nil
}
