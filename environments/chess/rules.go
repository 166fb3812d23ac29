package chess

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/corentings/chess/v2"
)

// reading is held while the library reads a position: it splits the ranks into one buffer of the whole process, so that two readers at once would each
// get some ranks of the other's.
var reading sync.Mutex

// firstPosition is that in which a game begins.
const firstPosition = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"

// board is a position. It is not changed.
type board struct{ at *chess.Position }

// readFEN reads a position in which a game can go on: one king each, and the side that is not to move is not in check.
func readFEN(fen string) (board, error) {
	b := board{&chess.Position{}}
	reading.Lock()
	err := b.at.UnmarshalText([]byte(fen))
	reading.Unlock()
	if err != nil {
		return board{}, fmt.Errorf("%w; a position is written as %s", err, firstPosition)
	}
	kings := map[chess.Piece]int{}
	for _, p := range b.at.Board().SquareMap() {
		kings[p]++
	}
	if kings[chess.WhiteKing] != 1 || kings[chess.BlackKing] != 1 {
		return board{}, errors.New("a position has one king of each side")
	}
	for _, m := range b.moves() {
		if p := b.at.Board().Piece(m.S2()); p == chess.WhiteKing || p == chess.BlackKing {
			return board{}, errors.New("the side that is not to move is in check")
		}
	}
	return b, nil
}

func (b board) fen() string { return b.at.String() }

// side that is to move.
func (b board) side() string {
	if b.at.Turn() == chess.White {
		return "White"
	}
	return "Black"
}

// moves that are legal, in the order of their names.
func (b board) moves() []chess.Move {
	out := b.legal()
	slices.SortFunc(out, func(x, y chess.Move) int { return strings.Compare(x.String(), y.String()) })
	return out
}

// legal moves in no order. Promotions are made anew: the library gives those to a bishop and a knight the check that the queen and the rook
// before them would give.
func (b board) legal() []chess.Move {
	out := b.at.ValidMoves()
	for i, m := range out {
		if m.Promo() == chess.NoPieceType {
			continue
		}
		if anew, err := (chess.UCINotation{}).Decode(b.at, m.String()); err == nil {
			out[i] = *anew
		}
	}
	return out
}

// names of the legal moves in UCI's notation: e2e4, e1g1, e7e8q.
func (b board) names() []string {
	moves := b.moves()
	out := make([]string, len(moves))
	for i := range moves {
		out[i] = moves[i].String()
	}
	return out
}

func (b board) after(m chess.Move) board { return board{b.at.Update(&m)} }

// mates tells whether a legal move ends the game by checkmate.
func (b board) mates(m chess.Move) bool {
	return m.HasTag(chess.Check) && b.after(m).at.Status() == chess.Checkmate
}

// mateIn1 are the moves that mate.
func (b board) mateIn1() (out []chess.Move) {
	for _, m := range b.moves() {
		if b.mates(m) {
			out = append(out, m)
		}
	}
	return out
}

// forces tells whether a move leaves the other side only moves after which there is a mate at once; and at least one such move.
func (b board) forces(m chess.Move) bool {
	next := b.after(m)
	replies := next.moves()
	for _, r := range replies {
		if !slices.ContainsFunc(next.after(r).legal(), next.after(r).mates) {
			return false
		}
	}
	return len(replies) > 0
}

// keys are the right moves of a puzzle: those that mate, in one; those that force it, in two.
func (b board) keys(mate int) []chess.Move {
	if mate == 1 {
		return b.mateIn1()
	}
	var out []chess.Move
	for _, m := range b.moves() {
		if b.forces(m) {
			out = append(out, m)
		}
	}
	return out
}

var decoration = strings.NewReplacer("+", "", "#", "", "!", "", "?", "", "-", "", "=", "", "x", "", ":", "", "0", "O", " ", "", "e.p.", "")

// read is the legal move that a text names, in UCI's notation (e2e4, e2-e4, e7e8q) or in the algebraic one (Nf3, exd5, e8=Q, O-O), also without
// the signs for captures, checks and promotions.
func (b board) read(text string) (m chess.Move, ok bool) {
	text = strings.TrimRight(strings.TrimSpace(text), ".;,")
	plain := decoration.Replace(text)
	if plain == "" || len(text) > 16 {
		return m, false
	}
	moves := b.moves()
	for _, m := range moves {
		if plain == m.String() || plain == decoration.Replace(chess.AlgebraicNotation{}.Encode(b.at, &m)) {
			return m, true
		}
	}
	for _, m := range moves { // B4c3 is a bishop's where there is one
		if strings.EqualFold(plain, m.String()) {
			return m, true
		}
	}
	return m, false
}

// draw is the board in eight lines, white at the bottom.
func (b board) draw() string {
	var out strings.Builder
	for rank := 7; rank >= 0; rank-- {
		fmt.Fprintf(&out, "%d", rank+1)
		for file := range 8 {
			sign := "."
			if p := b.at.Board().Piece(chess.NewSquare(chess.File(file), chess.Rank(rank))); p != chess.NoPiece {
				sign = p.Type().String()
				if p.Color() == chess.White {
					sign = strings.ToUpper(sign)
				}
			}
			out.WriteString(" " + sign)
		}
		out.WriteString("\n")
	}
	return out.String() + "  a b c d e f g h\n"
}
