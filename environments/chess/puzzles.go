package chess

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corentings/chess/v2"

	"github.com/agentfly/agentfly/environments"
)

// puzzle is a position in which the side to move mates in so many moves, and not earlier.
type puzzle struct {
	Game int    `json:"game"` // that it was found in: random games are numbered from 0
	FEN  string `json:"fen"`  // "": nothing was found in the game
	Mate int    `json:"mate"`
}

const (
	opening = 10  // plies of a random game before the engine is asked
	longest = 160 // plies of a random game
)

// find plays the random game of a number and returns the first position in it with a mate in so many moves. The engine is asked of positions in
// which there is a check, sees the mate, and the rules confirm it.
func find(ctx context.Context, e *engine, seed int64, game, mate int) (puzzle, error) {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(game)))
	b, err := readFEN(firstPosition)
	if err != nil {
		return puzzle{}, err
	}
	for ply := range longest {
		moves := b.moves()
		if len(moves) == 0 {
			break
		}
		if ply >= opening && slices.ContainsFunc(moves, func(m chess.Move) bool { return m.HasTag(chess.Check) }) && (mate == 2 || len(b.mateIn1()) > 0) {
			v, err := e.best(ctx, b.fen())
			if err != nil {
				return puzzle{}, err
			}
			if v.mate == mate && len(b.keys(mate)) > 0 && (mate == 1 || len(b.mateIn1()) == 0) {
				return puzzle{game, b.fen(), mate}, nil
			}
		}
		b = b.after(moves[r.IntN(len(moves))])
	}
	return puzzle{Game: game, Mate: mate}, nil
}

// split is that of a position: of pieces, side, castling and en passant, so that a position is in one split whichever game it comes from.
func (p puzzle) split() string {
	fields := strings.Fields(p.FEN)
	sum := sha256.Sum256([]byte(strings.Join(fields[:min(4, len(fields))], " ")))
	if binary.BigEndian.Uint32(sum[:])%3 == 0 {
		return environments.Eval
	}
	return environments.Train
}

// shelf is a file of the puzzles of a seed in the order of their games. Puzzles are found as far as somebody asks for them, once.
type shelf struct {
	path    string
	puzzles []puzzle // of games 0, 1, 2, ...
}

// openShelf reads what earlier runs found with the same engine.
func openShelf(cache, engine string, seed int64, mates []int) (*shelf, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "1 %s %d %v %d", engine, seed, mates, depth))
	s := &shelf{path: filepath.Join(cache, "puzzles-"+hex.EncodeToString(key[:8])+".jsonl")}
	b, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		var p puzzle
		if json.Unmarshal(line, &p) != nil || p.Game != len(s.puzzles) {
			break // what follows is found again
		}
		s.puzzles = append(s.puzzles, p)
	}
	return s, nil
}

// write replaces the file: another run that writes it at once has the same puzzles.
func (s *shelf) write() error {
	var b bytes.Buffer
	for _, p := range s.puzzles {
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), "puzzles-*.new")
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}
