package chess

import (
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/corentings/chess/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

var update = flag.Bool("update", false, "write testdata")

// kept are puzzles that TestPuzzlesAreFoundAgain wrote, so that most tests need not look for any.
func kept(t testing.TB) (out []puzzle) {
	t.Helper()
	b, err := os.ReadFile("testdata/puzzles.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &out))
	require.Len(t, out, 40)
	return out
}

func open(t testing.TB, cache string, params map[string]any) *source {
	t.Helper()
	r := resources.New(resources.Options{Cache: cache})
	s, err := New(t.Context(), r, params)
	if err != nil && strings.Contains(err.Error(), "is not installed") {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, r.Close())
	})
	return s.(*source)
}

func task(p puzzle) environments.Start {
	return environments.Start{Task: trajectory.Task{ID: "x", Fields: map[string]any{"fen": p.FEN, "mate": p.Mate, "answer": "none"}}}
}

func begin(t testing.TB, s *source, start environments.Start) *environment {
	t.Helper()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	_, err = e.Reset(t.Context(), start)
	require.NoError(t, err)
	return e.(*environment)
}

func step(t testing.TB, e environments.Environment, text string) environments.Result {
	t.Helper()
	r, err := e.Step(t.Context(), environments.Action{Text: text})
	require.NoError(t, err)
	return r
}

// Perft counts, which every chess programmer's page lists: the library's moves are right.
func TestMovesAreThoseOfChess(t *testing.T) {
	t.Parallel()
	for fen, want := range map[string][]int{
		"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1":             {20, 400, 8902},
		"r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1": {48, 2039, 97862},
		"8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1":                            {14, 191, 2812, 43238},
		"r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1":     {6, 264, 9467},
		"rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8":            {44, 1486, 62379},
	} {
		b, err := readFEN(fen)
		require.NoError(t, err)
		for i, n := range want {
			require.Equal(t, n, perft(b, i+1), "%s depth %d", fen, i+1)
		}
	}
}

// TestPromotionsCheckByThemselves shows that a promotion is not in check because the queen on its square would be.
func TestPromotionsCheckByThemselves(t *testing.T) {
	for fen, stalemates := range map[string][]string{
		"8/8/2k5/1r6/8/8/5rp1/K7 b - - 0 1":    {"g2g1n", "g2g1b"},
		"4K3/r7/3q4/8/1k6/8/1q2p3/8 b - - 0 1": {"e2e1b"},
	} {
		b, err := readFEN(fen)
		require.NoError(t, err)
		for _, name := range stalemates {
			m, ok := b.read(name)
			require.True(t, ok)
			require.False(t, b.mates(m), "%s %s", fen, name)
			for _, key := range b.keys(1) {
				require.NotEqual(t, name, key.String(), fen)
			}
		}
	}
	b, err := readFEN("6B1/8/B7/7P/Pp2k3/8/1p6/R3K2R b KQ - 0 1")
	require.NoError(t, err)
	m, ok := b.read("b2b1b")
	require.True(t, ok)
	again, err := readFEN(b.after(m).fen())
	require.NoError(t, err)
	require.Equal(t, again.names(), b.after(m).names())
	require.Contains(t, b.after(m).names(), "e1g1")
}

func perft(b board, depth int) (n int) {
	moves := b.moves()
	if depth == 1 {
		return len(moves)
	}
	for _, m := range moves {
		n += perft(b.after(m), depth-1)
	}
	return n
}

func TestKeysOfPuzzles(t *testing.T) {
	for _, c := range []struct {
		fen  string
		mate int
		want []string
	}{
		{"6k1/5ppp/8/8/8/8/8/R6K w - - 0 1", 1, []string{"a1a8"}},
		{"6k1/5ppp/8/8/8/8/8/R6K w - - 0 1", 2, nil},
		{"7k/8/8/8/8/8/1R6/R6K w - - 0 1", 2, []string{"a1a7", "a1g1", "b2b7"}},
		{"k7/8/1K6/8/8/8/8/7R w - - 0 1", 1, []string{"h1h8"}},
		{"k7/2Q5/8/8/8/8/8/K7 w - - 0 1", 1, nil}, // stalemate is near, mate is not
		{"6k1/4Pppp/8/8/8/8/8/7K w - - 0 1", 1, []string{"e7e8q", "e7e8r"}},
	} {
		b, err := readFEN(c.fen)
		require.NoError(t, err)
		var got []string
		for _, m := range b.keys(c.mate) {
			got = append(got, m.String())
		}
		require.Equal(t, c.want, got, c.fen)
	}
}

func TestReadMoves(t *testing.T) {
	b, err := readFEN("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1")
	require.NoError(t, err)
	for text, want := range map[string]string{
		"e1g1": "e1g1", "O-O": "e1g1", "0-0": "e1g1", "o-o": "", "O-O-O": "e1c1", " e5f7. ": "e5f7", "Nxf7": "e5f7", "Nf7": "e5f7", "NXF7": "", "E5-F7": "e5f7", "dxe6": "d5e6", "de6": "d5e6",
		"d5xe6": "d5e6", "Qxf6!": "f3f6", "Qxf6+": "f3f6", "a4": "a2a4", "e5": "", "Ke2": "", "": "", "+": "", "the move e5f7": "", "nonsense that is long": "", "\x00": "",
	} {
		m, ok := b.read(text)
		require.Equal(t, want != "", ok, "%q", text)
		if ok {
			require.Equal(t, want, m.String(), "%q", text)
		}
	}
	b, err = readFEN("6k1/4Pppp/8/8/8/8/8/7K w - - 0 1")
	require.NoError(t, err)
	for text, want := range map[string]string{"e8=Q": "e7e8q", "e8Q#": "e7e8q", "e8=Q+": "e7e8q", "e7e8n": "e7e8n", "e7-e8=R": "e7e8r", "e8": ""} {
		m, ok := b.read(text)
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, m.String(), text)
		}
	}
	b, err = readFEN("6k1/8/8/8/1p1b4/2N5/3b4/7K b - - 0 1")
	require.NoError(t, err)
	for text, want := range map[string]string{"B4xc3": "d4c3", "B2xc3": "d2c3", "bxc3": "b4c3", "b4c3": "b4c3", "b4xc3": "b4c3", "D4C3": "d4c3"} {
		m, ok := b.read(text)
		require.True(t, ok, text)
		require.Equal(t, want, m.String(), text)
	}
	for _, m := range b.moves() { // what the legal moves are called can be written
		got, ok := b.read(chess.AlgebraicNotation{}.Encode(b.at, &m))
		require.True(t, ok)
		require.Equal(t, m.String(), got.String())
	}
}

func TestWrongPositions(t *testing.T) {
	for fen, want := range map[string]string{
		"": "", "x": "", "8/8/8/8/8/8/8/8 w - - 0 1": "one king of each side", "k7/8/8/8/8/8/8/8 w - - 0 1": "one king", "k7/8/8/8/8/8/8/KK6 w - - 0 1": "one king",
		"R6k/8/8/8/8/8/8/K7 w - - 0 1": "the side that is not to move is in check", "9/8/8/8/8/8/8/8 w - - 0 1": "", strings.Repeat("k", 100_000): "",
	} {
		_, err := readFEN(fen)
		require.Error(t, err, "%.50q", fen)
		require.ErrorContains(t, err, want)
	}
}

func FuzzFEN(f *testing.F) {
	f.Add("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", "O-O")
	f.Add("6k1/4Pppp/8/8/8/8/8/7K w - e3 0 1", "e8=Q")
	f.Fuzz(func(_ *testing.T, fen, move string) {
		if b, err := readFEN(fen); err == nil {
			b.read(move)
			b.draw()
		}
	})
}

// The engine finds the kept puzzles again, and the rules agree: the number of moves is the least.
func TestPuzzlesAreFoundAgain(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	n := 8
	if *update {
		n = 40
	}
	found, err := s.puzzles(t.Context(), environments.Eval, n)
	require.NoError(t, err)
	if *update {
		b, err := json.Marshal(found)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("testdata/puzzles.json", []byte(strings.ReplaceAll(string(b), "},", "},\n")+"\n"), 0o644))
	}
	name, err := s.engine.name(t.Context())
	require.NoError(t, err)
	if name == "Stockfish 15.1" {
		require.Equal(t, kept(t)[:n], found)
	}
	for _, p := range kept(t) {
		b, err := readFEN(p.FEN)
		require.NoError(t, err)
		require.NotEmpty(t, b.keys(p.Mate), p)
		v, err := s.engine.best(t.Context(), p.FEN)
		require.NoError(t, err)
		require.Equal(t, p.Mate, v.mate)
		require.True(t, slices.ContainsFunc(b.keys(p.Mate), func(m chess.Move) bool { return m.String() == v.best }))
	}
}

func TestSolverSolvesHeldOutPuzzles(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	of := map[int]int{}
	for _, p := range kept(t) {
		e := begin(t, s, task(p))
		actions, err := e.Solution(t.Context())
		require.NoError(t, err)
		require.Len(t, actions, p.Mate)
		sum := 0.0
		for i, a := range actions {
			r := step(t, e, a.Text)
			sum += r.Reward
			require.Equal(t, i == len(actions)-1, r.Terminated, r.Observation)
		}
		require.InDelta(t, 1, sum, 0)
		of[p.Mate]++
	}
	require.Greater(t, of[1], 10)
	require.Greater(t, of[2], 10)
}

func TestRandomPolicy(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	r := rand.New(rand.NewPCG(3, 3))
	sum, n := 0.0, 0
	for range 25 {
		for _, p := range kept(t) {
			e := begin(t, s, task(p))
			for !e.now.Over {
				actions, err := e.Actions(t.Context())
				require.NoError(t, err)
				sum += step(t, e, actions[r.IntN(len(actions))]).Reward
			}
			n++
		}
	}
	t.Logf("a random policy reaches %.3f on %d episodes of 40 held-out puzzles", sum/float64(n), n)
	require.Less(t, sum/float64(n), 0.2)
	require.Positive(t, sum)
}

func TestEpisode(t *testing.T) {
	s := open(t, t.TempDir(), map[string]any{"max_steps": 3})
	two := puzzle{FEN: "7k/8/8/8/8/8/1R6/R6K w - - 0 1", Mate: 2}
	e := begin(t, s, task(two))
	require.Equal(t, `White to move mates in 2 moves.
8 . . . . . . . k
7 . . . . . . . .
6 . . . . . . . .
5 . . . . . . . .
4 . . . . . . . .
3 . . . . . . . .
2 . R . . . . . .
1 R . . . . . . K
  a b c d e f g h
`, e.page()[:strings.Index(e.page(), "Legal")])
	require.Contains(t, e.page(), "Legal moves: a1a2 a1a3")
	r := step(t, e, "castle")
	require.Equal(t, trajectory.FailurePolicy, r.Failure)
	require.Contains(t, r.Observation[0].Text, `"castle" is no legal move here.`)
	require.Contains(t, r.Observation[0].Text, e.page())
	require.False(t, r.Over())

	state, err := e.State(t.Context())
	require.NoError(t, err)
	forked, err := e.Fork(t.Context())
	require.NoError(t, err)
	r = step(t, e, "Ra7")
	require.InDelta(t, 0.25, r.Reward, 0)
	require.False(t, r.Over())
	require.Contains(t, r.Observation[0].Text, "You play a1a7, Black answers h8g8.\nWhite to move mates in 1 move.")
	other := begin(t, s, task(puzzle{FEN: "6k1/5ppp/8/8/8/8/8/R6K w - - 0 1", Mate: 1}))
	require.NoError(t, other.Restore(t.Context(), state))
	require.Equal(t, r, step(t, other, "a1a7"))
	require.Equal(t, r, step(t, forked, "a1a7"))
	r = step(t, e, "Rb8#")
	require.InDelta(t, 0.75, r.Reward, 0)
	require.True(t, r.Terminated)
	require.Equal(t, map[string]any{"solved": true, "moves": "a1a7 h8g8 b2b8"}, r.Info)
	_, err = e.Step(t.Context(), environments.Action{Text: "a1a7"})
	require.ErrorContains(t, err, "reset first")
	r = step(t, other, "h1h2")
	require.True(t, r.Terminated)
	require.Zero(t, r.Reward)
	require.Contains(t, r.Observation[0].Text, "h1h2 does not mate in 1. The puzzle is lost.")

	e = begin(t, s, task(two))
	require.False(t, step(t, e, "x").Over())
	require.False(t, step(t, e, "x").Over())
	r = step(t, e, "x")
	require.True(t, r.Truncated)
	require.Contains(t, r.Observation[0].Text, "ends after 3 actions")
	require.ErrorContains(t, e.Restore(t.Context(), json.RawMessage(`{"fen":"x","mate":1}`)), "the state's position")
	require.ErrorContains(t, e.Restore(t.Context(), json.RawMessage(`{"fen":"6k1/8/8/8/8/8/8/R6K w - - 0 1","mate":7}`)), "mate in 7")
}

func TestTasks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, map[string]any{"mates": []int{1}, "seed": 7})
	train, err := s.Tasks(environments.Train, 12)
	require.NoError(t, err)
	eval, err := s.Tasks(environments.Eval, 5)
	require.NoError(t, err)
	fens := map[any]bool{}
	for _, task := range append(slices.Clone(train), eval...) {
		require.False(t, fens[task.Fields["fen"]])
		fens[task.Fields["fen"]] = true
		require.Equal(t, 1, task.Fields["mate"])
	}
	e := begin(t, s, environments.Start{Seed: 3})
	again := begin(t, s, environments.Start{Seed: 3})
	require.Equal(t, e.now, again.now)

	// A later run reads what was found, and finds again what a broken file lost.
	files, err := filepath.Glob(filepath.Join(dir, Name, "puzzles-*.jsonl"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files[0], b[:len(b)/2], 0o600))
	later := open(t, dir, map[string]any{"mates": []int{1}, "seed": 7})
	tasks, err := later.Tasks(environments.Train, 12)
	require.NoError(t, err)
	require.Equal(t, train, tasks)
	_, err = s.Tasks("test", 1)
	require.ErrorContains(t, err, `no split "test"`)
}

func TestWrongTasksAndParameters(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	for fields, want := range map[string]string{
		`{"FEN":"x"}`: `no field "FEN"`, `{"fen":"x","mate":3}`: "the number 1 or 2", `{"fen":7,"mate":1}`: "the number 1 or 2", `{"mate":1}`: "the task's fen",
		`{"fen":"6k1/5ppp/8/8/8/8/8/R6K w - - 0 1","mate":2}`: "there is no mate in 2",
	} {
		var f map[string]any
		require.NoError(t, json.Unmarshal([]byte(fields), &f))
		_, err := e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: f}})
		require.ErrorContains(t, err, want)
	}
	r := resources.New(resources.Options{})
	for params, want := range map[string]string{`{"mates":[3]}`: "mates is [3]", `{"mates":[]}`: "mates is []", `{"max_steps":0}`: "max_steps is 0", `{"depth":1}`: `unknown field "depth"`} {
		var p map[string]any
		require.NoError(t, json.Unmarshal([]byte(params), &p))
		_, err := New(t.Context(), r, p)
		require.ErrorContains(t, err, want)
	}
}

func TestMissingEngineNamesItsCommand(t *testing.T) {
	_, err := New(t.Context(), resources.New(resources.Options{}), map[string]any{"engine": "no-such-engine"})
	require.EqualError(t, err, "the chess engine no-such-engine is not installed; apt-get install stockfish, or give its path as engine")
}

// An engine with a slash is a path of the job: it is found beside the job file.
func TestTheEngineBesideTheJob(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "engine")
	require.NoError(t, os.WriteFile(path, nil, 0o700)) // nothing runs it
	r := resources.New(resources.Options{Resolve: func(path string) string { return filepath.Join(folder, path) }})
	s, err := New(t.Context(), r, map[string]any{"engine": "./engine"})
	require.NoError(t, err)
	require.Equal(t, path, s.(*source).engine.path)
	require.NoError(t, s.Close())
	require.NoError(t, r.Close())
}

// An engine that dies fails the step that asked it, and the next one has a new engine; the episodes of others go on.
func TestEngineDies(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	two := puzzle{FEN: "7k/8/8/8/8/8/1R6/R6K w - - 0 1", Mate: 2}
	e := begin(t, s, task(two))
	_, err := s.engine.name(t.Context())
	require.NoError(t, err)
	p := s.engine.run
	require.NoError(t, p.group.Signal(syscall.SIGKILL))
	<-p.ended
	_, err = e.Step(t.Context(), environments.Action{Text: "a1a7"})
	require.ErrorContains(t, err, "chess: the engine ")
	require.InDelta(t, 0.25, step(t, begin(t, s, task(two)), "a1a7").Reward, 0)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.engine.best(ctx, two.FEN)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.engine.best(t.Context(), two.FEN)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = s.engine.best(t.Context(), two.FEN)
	require.ErrorContains(t, err, "it is closed")
}

// A program that is no engine, one that talks without end, and one that says nothing, are errors in time.
func TestProgramsThatAreNoEngine(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ script, want string }{
		"ends":  {"exit 3", "it ended"},
		"wrong": {`while read line; do case "$line" in uci) echo uciok;; isready) echo readyok;; go*) echo bestmove e9e9;; esac; done`, `answers "e9e9"`},
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700))
		s := open(t, dir, map[string]any{"engine": path})
		e := begin(t, s, task(puzzle{FEN: "7k/8/8/8/8/8/1R6/R6K w - - 0 1", Mate: 2}))
		_, err := e.Step(t.Context(), environments.Action{Text: "a1a7"})
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, path)
	}
	path := filepath.Join(dir, "silent")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\ncat >/dev/null\n"), 0o700))
	e := &engine{path: path, limit: 50 * time.Millisecond}
	_, err := e.best(t.Context(), "x")
	require.ErrorContains(t, err, "it did not say uciok")
	e.close()
}

func TestManyAskAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	puzzles := kept(t)
	var wait sync.WaitGroup
	for _, p := range puzzles {
		wait.Go(func() {
			e, _ := s.New(context.Background(), "test")
			if _, err := e.Reset(context.Background(), task(p)); err != nil {
				t.Error(err)
				return
			}
			actions, err := e.(*environment).Solution(context.Background())
			if err != nil {
				t.Error(err)
			}
			for _, a := range actions {
				if _, err := e.Step(context.Background(), a); err != nil {
					t.Error(err)
				}
			}
			if !e.(*environment).now.Over {
				t.Error(p)
			}
		})
	}
	wait.Wait()
}

// BenchmarkFind finds puzzles in random games.
func BenchmarkFind(b *testing.B) {
	s := open(b, b.TempDir(), nil)
	found, game := 0, 0
	for b.Loop() {
		p, err := find(b.Context(), s.engine, 99, game, 1+game%2)
		require.NoError(b, err)
		if game++; p.FEN != "" {
			found++
		}
	}
	b.ReportMetric(float64(found)/float64(game), "found/game")
}

// Positions that are read at the same time are each their own: the library has one buffer for all readers.
func TestPositionsAreReadAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, p := range kept(t)[:8] {
		all.Go(func() {
			for range 2000 {
				b, err := readFEN(p.FEN)
				if !assert.NoError(t, err) || !assert.Equal(t, p.FEN, b.fen()) {
					return
				}
			}
		})
	}
	all.Wait()
}

// A job that is only looked at does not start the engine that it names.
func TestEngineIsNotRunWhereAJobIsOnlyLookedAt(t *testing.T) {
	r := resources.New(resources.Options{Look: true})
	_, err := New(t.Context(), r, map[string]any{"engine": "my-engine"})
	require.ErrorAs(t, err, new(*resources.NotRunError))
	require.Equal(t, []string{"the chess engine my-engine, which is not started"}, r.NotRun())
	_, err = New(t.Context(), r, map[string]any{"max_steps": 0})
	require.ErrorContains(t, err, "max_steps is 0", "what needs no engine is checked")
	require.NoError(t, r.Close())
}
