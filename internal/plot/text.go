package plot

import (
	"fmt"
	"math"
	"strings"
)

// Screen says how a chart is drawn as text.
type Screen struct {
	Width, Height int  // of the area with the lines, in characters
	Colours       bool // lines are told apart by colours, else by characters
	ASCII         bool // no braille
}

// marks of lines that are not told apart by colours.
var marks = [MostLines]byte{'*', 'o', '+', 'x', '#', '@', '%', '&'}

// colours of lines on a terminal: those that it names itself, then grey and orange of 256.
var colours = [MostLines]string{"36", "33", "35", "32", "34", "31", "38;5;245", "38;5;208"}

// Text draws a chart, a string a line, without line feeds. Only its own colours are escapes: titles and names are the caller's to make safe.
func (c Chart) Text(s Screen) []string {
	x0, x1, y0, y1, ok := c.bounds()
	out := []string{c.Title}
	if !ok {
		return append(out, "  no numbers")
	}
	width, height := max(8, s.Width), max(3, s.Height)
	dots := !s.ASCII && (s.Colours || len(c.Lines) == 1)
	area := newArea(width, height, dots)
	for n, l := range c.Lines {
		for i := range l.X {
			px, py := area.place(share(l.X[i], x0, x1), share(l.Y[i], y0, y1))
			qx, qy := px, py
			if i > 0 {
				qx, qy = area.place(share(l.X[i-1], x0, x1), share(l.Y[i-1], y0, y1))
			}
			area.line(qx, qy, px, py, n)
		}
	}
	labels := map[int]string{0: Number(y1), height - 1: Number(y0)}
	if height >= 5 {
		labels[(height-1)/2] = Number(y1 - (y1/2-y0/2)*2*float64((height-1)/2)/float64(height-1))
	}
	wide := 0
	for _, label := range labels {
		wide = max(wide, len(label))
	}
	side, corner, floor := "┤", "└", "─"
	if s.ASCII {
		side, corner, floor = "|", "+", "-"
	}
	for row := range height {
		out = append(out, strings.TrimRight(fmt.Sprintf("%*s %s", wide, labels[row], side)+area.row(row, s.Colours && len(c.Lines) > 1), " "))
	}
	out = append(out, strings.Repeat(" ", wide+1)+corner+strings.Repeat(floor, width))
	left, right := Number(x0), Number(x1)
	out = append(out, strings.Repeat(" ", wide+2)+left+strings.Repeat(" ", max(1, width-len(left)-len(right)))+right)
	if c.legend() {
		for n, l := range c.Lines {
			mark := string(marks[n%len(marks)]) + " "
			switch {
			case len(c.Lines) == 1: // nothing to tell it apart from
				mark = ""
			case dots:
				mark = "\x1b[" + colours[n%len(colours)] + "m━━\x1b[0m "
			}
			out = append(out, strings.Repeat(" ", wide+2)+mark+l.Name)
		}
	}
	return out
}

// area is what lines are drawn into: dots of 2 by 4 a character, or one mark a character.
type area struct {
	width, height int // characters
	dots          bool
	set           []uint8 // dots of each character
	of            []int   // the line that was drawn last there; -1: none
}

func newArea(width, height int, dots bool) *area {
	a := &area{width: width, height: height, dots: dots, set: make([]uint8, width*height), of: make([]int, width*height)}
	for i := range a.of {
		a.of[i] = -1
	}
	return a
}

func (a *area) size() (w, h int) {
	if a.dots {
		return 2 * a.width, 4 * a.height
	}
	return a.width, a.height
}

// place is the dot of a point, whose coordinates go from 0 to 1.
func (a *area) place(x, y float64) (px, py int) {
	w, h := a.size()
	return int(math.Round(x * float64(w-1))), int(math.Round((1 - y) * float64(h-1)))
}

// line draws all dots between two (Bresenham).
func (a *area) line(x0, y0, x1, y1, of int) {
	dx, dy := abs(x1-x0), -abs(y1-y0)
	sx, sy := sign(x1-x0), sign(y1-y0)
	e := dx + dy
	for {
		a.dot(x0, y0, of)
		if x0 == x1 && y0 == y1 {
			return
		}
		twice := 2 * e
		if twice >= dy {
			e += dy
			x0 += sx
		}
		if twice <= dx {
			e += dx
			y0 += sy
		}
	}
}

func abs(n int) int { return max(n, -n) }

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

// bits of a braille character by row and column of its dots.
var bits = [4][2]uint8{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

func (a *area) dot(x, y, of int) {
	cx, cy, bit := x, y, uint8(1)
	if a.dots {
		cx, cy, bit = x/2, y/4, bits[y%4][x%2]
	}
	a.set[cy*a.width+cx] |= bit
	a.of[cy*a.width+cx] = of
}

func (a *area) row(y int, coloured bool) string {
	var b strings.Builder
	for x := range a.width {
		set, of := a.set[y*a.width+x], a.of[y*a.width+x]
		switch {
		case set == 0:
			b.WriteByte(' ')
		case !a.dots:
			b.WriteByte(marks[of%len(marks)])
		case coloured:
			b.WriteString("\x1b[" + colours[of%len(colours)] + "m" + string(rune(0x2800+int(set))) + "\x1b[0m")
		default:
			b.WriteRune(rune(0x2800 + int(set)))
		}
	}
	return b.String()
}
