// Package chess is a world of chess puzzles: mate in one, or in two. Puzzles are found in random games by Stockfish, which also plays the other
// side; whether a move is right, the rules decide, by trying all replies. It owns the engine's process, one for all environments of a source,
// and the file of puzzles in the folder of caches. The rules themselves are github.com/corentings/chess's.
//
// The right first move of two gives 0.25, mate the rest to 1. A legal move that is not right ends the episode: the puzzle is lost. A text that is no
// legal move changes nothing.
//
// It does not lend environments or hold deadlines: package environments does.
package chess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// Name of the kind.
const Name = "chess"

const (
	defaultEngine = "stockfish"
	firstMove     = 0.25 // of the reward: the right first move of two
)

// Params of the environment in a job.
type Params struct {
	Seed     *int64 `json:"seed"`      // of the random games; 1
	Mates    []int  `json:"mates"`     // puzzles of the source's own tasks, in turn: 1, 2; both
	MaxSteps *int   `json:"max_steps"` // of an episode, from the largest of mates to 100; 6
	Engine   string `json:"engine"`    // the program: its name or path; stockfish
}

// Kind declares the environment.
func Kind() environments.Kind {
	return environments.Kind{Name: Name, Description: "chess puzzles, mate in one or two, against Stockfish", New: New}
}

// New makes the source of one job. The engine must be installed; it starts when it is first asked.
func New(_ context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{Engine: defaultEngine, Mates: []int{1, 2}}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	s := &source{resources: r, seed: 1, mates: p.Mates, maxSteps: 6}
	if p.Seed != nil {
		s.seed = *p.Seed
	}
	if p.MaxSteps != nil {
		s.maxSteps = *p.MaxSteps
	}
	if len(s.mates) == 0 || slices.ContainsFunc(s.mates, func(m int) bool { return m != 1 && m != 2 }) {
		return nil, fmt.Errorf("mates is %v; give 1, 2 or both", s.mates)
	}
	if least := slices.Max(s.mates); s.maxSteps < least || s.maxSteps > 100 {
		return nil, fmt.Errorf("max_steps is %d; give %d, the moves of the longest mate, to 100", s.maxSteps, least)
	}
	if err := r.Run("the chess engine " + p.Engine + ", which is not started"); err != nil {
		return nil, err
	}
	path, err := r.Program(p.Engine)
	if err != nil {
		return nil, err
	}
	if path, err = findEngine(path); err != nil {
		return nil, err
	}
	s.engine = &engine{path: path}
	s.finding, s.closed = make(chan struct{}, 1), make(chan struct{})
	return s, nil
}

// source makes environments that share one engine. It is safe for concurrent use.
type source struct {
	resources *resources.Resources
	engine    *engine
	seed      int64
	mates     []int
	maxSteps  int

	finding chan struct{} // holds a token while one game is searched; it guards the shelf
	shelf   *shelf
	closed  chan struct{}
	close   sync.Once
}

var (
	_ environments.Source = (*source)(nil)
	_ environments.Tasker = (*source)(nil)
)

const instructions = `You solve chess puzzles. Each turn you write one move and nothing else, such as e2e4, e7e8q, Nf3 or O-O. Capital letters on the board are White's pieces.
Only a move that mates, or that forces mate in the number of moves that is asked for, is right. You cannot take a move back.`

func (s *source) Spec() environments.Spec {
	return environments.Spec{Instructions: instructions, Deterministic: true}
}

func (s *source) New(context.Context, string) (environments.Environment, error) {
	return &environment{source: s}, nil
}

// Tasks are puzzles of a split. The fields "fen" and "mate" hold a puzzle whole.
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	if split != environments.Train && split != environments.Eval {
		return nil, fmt.Errorf("chess: there is no split %q; the splits are train and eval", wording.Clip(split, 64))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // the search ends with the source
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	puzzles, err := s.puzzles(ctx, split, n)
	if err != nil {
		return nil, fmt.Errorf("chess: %w", err)
	}
	out := make([]trajectory.Task, len(puzzles))
	for i, p := range puzzles {
		out[i] = trajectory.Task{ID: fmt.Sprintf("chess-%d-mate%d-%d", s.seed, p.Mate, p.Game), Fields: map[string]any{"fen": p.FEN, "mate": p.Mate}}
	}
	return out, nil
}

func (s *source) puzzles(ctx context.Context, split string, n int) ([]puzzle, error) {
	var out []puzzle
	met := map[string]bool{}
	var grown bool
	for game := 0; len(out) < n; game++ {
		p, found, err := s.puzzle(ctx, game)
		if grown = grown || found; err == nil && p.FEN != "" && !met[p.FEN] && p.split() == split {
			met[p.FEN] = true
			out = append(out, p)
		}
		if err == nil && game > 100+100*n {
			err = fmt.Errorf("in %d random games there are %d puzzles of the split %s, not %d", game, len(out), split, n)
		}
		if err != nil {
			return nil, errors.Join(err, s.keep(grown))
		}
	}
	return out, s.keep(grown)
}

// puzzle is that of one game. found: it was not known. Others wait for one game, not for a whole search.
func (s *source) puzzle(ctx context.Context, game int) (p puzzle, found bool, err error) {
	select {
	case s.finding <- struct{}{}:
		defer func() { <-s.finding }()
	case <-ctx.Done():
		return p, false, ctx.Err()
	}
	if s.shelf == nil {
		name, err := s.engine.name(ctx)
		if err != nil {
			return p, false, err
		}
		cache, err := s.resources.Cache(Name)
		if err != nil {
			return p, false, err
		}
		if s.shelf, err = openShelf(cache, name, s.seed, s.mates); err != nil {
			return p, false, err
		}
	}
	if game < len(s.shelf.puzzles) {
		return s.shelf.puzzles[game], false, nil
	}
	if p, err = find(ctx, s.engine, s.seed, game, s.mates[game%len(s.mates)]); err != nil {
		return p, false, err
	}
	s.shelf.puzzles = append(s.shelf.puzzles, p)
	return p, true, nil
}

// keep writes the shelf where a search found more.
func (s *source) keep(grown bool) error {
	if !grown {
		return nil
	}
	s.finding <- struct{}{}
	defer func() { <-s.finding }()
	return s.shelf.write()
}

// Close ends the engine.
func (s *source) Close() error {
	s.close.Do(func() { close(s.closed) })
	s.engine.close()
	return nil
}

// game is where an episode stands: all that State keeps.
type game struct {
	FEN   string   `json:"fen"`
	Mate  int      `json:"mate"` // moves until the side to move has to mate
	Steps int      `json:"steps"`
	Moves []string `json:"moves,omitempty"` // that were played, of both sides
	Over  bool     `json:"over,omitempty"`
}

// environment is one puzzle at a time.
type environment struct {
	source *source
	now    game
	board  board
}

var (
	_ environments.Environment = (*environment)(nil)
	_ environments.Stater      = (*environment)(nil)
	_ environments.Forker      = (*environment)(nil)
	_ environments.Chooser     = (*environment)(nil)
	_ environments.Solver      = (*environment)(nil)
)

// Reset sets up the puzzle of the task, or one of the first hundred of the training split that the seed draws.
func (e *environment) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	p, err := e.source.puzzleOf(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("chess: %w", err)
	}
	b, err := readFEN(p.FEN)
	if err != nil {
		return nil, environments.WrongTask("chess: the task's fen %q: %v", wording.Clip(p.FEN, 100), err)
	}
	if len(b.keys(p.Mate)) == 0 {
		return nil, environments.WrongTask("chess: the task's fen %q: there is no mate in %d", wording.Clip(p.FEN, 100), p.Mate)
	}
	e.board, e.now = b, game{FEN: b.fen(), Mate: p.Mate}
	return environments.Text(e.page()), nil
}

// drawn are the puzzles among which a seed draws.
const drawn = 100

func (s *source) puzzleOf(ctx context.Context, start environments.Start) (puzzle, error) {
	fields := start.Task.Fields
	for name := range fields {
		if name != "fen" && name != "mate" && !start.Spare(name) {
			return puzzle{}, environments.WrongTask("a task has no field %q; it has fen, a position, and mate, 1 or 2", wording.Clip(name, 64))
		}
	}
	if fields["fen"] == nil && fields["mate"] == nil {
		all, err := s.puzzles(ctx, environments.Train, drawn)
		if err != nil {
			return puzzle{}, err
		}
		return all[rand.New(rand.NewPCG(uint64(start.Seed), 0xc4e5)).IntN(len(all))], nil
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return puzzle{}, err
	}
	var p puzzle
	if err := json.Unmarshal(b, &p); err != nil || p.Mate != 1 && p.Mate != 2 {
		return puzzle{}, environments.WrongTask("a task has the fields fen, a position as text, and mate, the number 1 or 2")
	}
	return p, nil
}

// Step plays a move, and where the puzzle goes on the engine's reply.
func (e *environment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if e.now.FEN == "" || e.now.Over {
		return environments.Result{}, errors.New("chess: step without an episode; reset first")
	}
	m, legal := e.board.read(a.Text)
	g := e.now
	g.Steps++
	var r environments.Result
	var text string
	switch {
	case !legal:
		r.Failure = trajectory.FailurePolicy
		text = fmt.Sprintf("%q is no legal move here.\n", wording.Clip(a.Text, 32))
	case e.board.mates(m):
		g.Moves, g.Over = append(slices.Clone(g.Moves), m.String()), true
		r.Reward, r.Terminated, r.Success = 1, true, true
		if len(g.Moves) > 1 {
			r.Reward -= firstMove
		}
		text = "Checkmate. The puzzle is solved."
	case g.Mate == 1 || !e.board.forces(m):
		g.Moves, g.Over = append(slices.Clone(g.Moves), m.String()), true
		r.Terminated = true
		text = fmt.Sprintf("%s does not mate in %d. The puzzle is lost.", m.String(), g.Mate)
	default:
		next := e.board.after(m)
		reply, err := e.source.reply(ctx, next)
		if err != nil {
			return environments.Result{}, fmt.Errorf("chess: %w", err)
		}
		answer, _ := next.read(reply)
		b := next.after(answer)
		text = fmt.Sprintf("You play %s, %s answers %s.\n", m.String(), next.side(), reply)
		g.FEN, g.Mate, g.Moves = b.fen(), 1, append(slices.Clone(g.Moves), m.String(), reply)
		e.board, r.Reward = b, firstMove
	}
	e.now = g
	r.Anchor = e.anchor()
	r.Info = map[string]any{"solved": r.Terminated && r.Reward > 0, "moves": strings.Join(g.Moves, " ")}
	if !r.Terminated {
		text += e.page()
		if g.Steps >= e.source.maxSteps {
			e.now.Over, r.Truncated = true, true
			text = fmt.Sprintf("The puzzle ends after %d actions: it is not solved.", e.source.maxSteps)
		}
	}
	r.Observation = environments.Text(text)
	return r, nil
}

// reply is the engine's move.
func (s *source) reply(ctx context.Context, b board) (string, error) {
	v, err := s.engine.best(ctx, b.fen())
	if err != nil {
		return "", err
	}
	if !slices.Contains(b.names(), v.best) {
		return "", fmt.Errorf("the engine %s answers %q in the position %s, which is no legal move", s.engine.path, v.best, b.fen())
	}
	return v.best, nil
}

// page is what the agent reads.
func (e *environment) page() string {
	moves := "move"
	if e.now.Mate > 1 {
		moves = "moves"
	}
	return fmt.Sprintf("%s to move mates in %d %s.\n%sLegal moves: %s", e.board.side(), e.now.Mate, moves, e.board.draw(), strings.Join(e.board.names(), " "))
}

// anchor names the position, what is asked for, and the end.
func (e *environment) anchor() string {
	if e.now.Over {
		return "end " + strings.Join(e.now.Moves, " ")
	}
	if len(e.now.Moves) == 0 {
		return e.page() // which names the start after the reset
	}
	fields := strings.Fields(e.now.FEN)
	return fmt.Sprintf("%s mate %d", strings.Join(fields[:min(4, len(fields))], " "), e.now.Mate)
}

// Close has nothing to release: the engine is the source's.
func (e *environment) Close() error { return nil }

// State is where the puzzle stands.
func (e *environment) State(context.Context) (json.RawMessage, error) { return json.Marshal(e.now) }

// Restore goes on where State was asked.
func (e *environment) Restore(_ context.Context, state json.RawMessage) error {
	var g game
	if err := json.Unmarshal(state, &g); err != nil {
		return fmt.Errorf("chess: the state cannot be read: %w", err)
	}
	b, err := readFEN(g.FEN)
	if err != nil {
		return fmt.Errorf("chess: the state's position: %w", err)
	}
	if g.Mate != 1 && g.Mate != 2 {
		return fmt.Errorf("chess: the state asks for mate in %d", g.Mate)
	}
	e.board, e.now = b, g
	return nil
}

// Fork is the same puzzle a second time. Nothing of a game is changed in place.
func (e *environment) Fork(context.Context) (environments.Environment, error) {
	f := *e
	return &f, nil
}

// Actions are the legal moves.
func (e *environment) Actions(context.Context) ([]string, error) {
	if e.now.Over {
		return nil, nil
	}
	return e.board.names(), nil
}

// Solution is the first right move of each turn, against the engine's replies.
func (e *environment) Solution(ctx context.Context) ([]environments.Action, error) {
	b, mate := e.board, e.now.Mate
	var out []environments.Action
	for {
		keys := b.keys(mate)
		if len(keys) == 0 {
			return nil, fmt.Errorf("chess: %s has no mate in %d", b.fen(), mate)
		}
		out = append(out, environments.Action{Text: keys[0].String()})
		if mate == 1 {
			return out, nil
		}
		b = b.after(keys[0])
		reply, err := e.source.reply(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("chess: %w", err)
		}
		answer, _ := b.read(reply)
		b, mate = b.after(answer), 1
	}
}
