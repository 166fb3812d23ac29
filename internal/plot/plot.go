// Package plot draws curves: as text for a terminal, in braille dots or plain characters, and as SVG and PNG files. It is small because a run's curves
// need little: lines over steps, two axes, a legend (gonum/plot would add 8 MB to the program, for fonts above all).
//
// It does not choose what is drawn, and it does not read runs.
package plot

import (
	"math"
	"strconv"
	"strings"
)

// Chart is one picture: lines over the same axes.
type Chart struct {
	Title string
	Lines []Line
	Named bool // the legend is there for a single line too
}

// legend tells whether the lines are named below the picture.
func (c Chart) legend() bool { return c.Named || len(c.Lines) > 1 }

// MostLines is how many lines of a chart are told apart; those after it look like the first ones.
const MostLines = 8

// Line is a curve. X grows; both hold finite numbers, as many of the one as of the other.
type Line struct {
	Name string
	X, Y []float64
}

// bounds of a chart's lines; y is wider than the lines where they are flat. ok is false where there is no point.
func (c Chart) bounds() (x0, x1, y0, y1 float64, ok bool) {
	x0, y0, x1, y1 = math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, l := range c.Lines {
		for i := range l.X {
			x0, x1 = min(x0, l.X[i]), max(x1, l.X[i])
			y0, y1 = min(y0, l.Y[i]), max(y1, l.Y[i])
			ok = true
		}
	}
	if y1 == y0 {
		pad := max(math.Abs(y0)*0.05, 0.5)
		if math.Abs(y0) > 0 && math.Abs(y0) < 0.5 {
			pad = math.Abs(y0) / 2
		}
		y0, y1 = y0-pad, y1+pad
	}
	if x1 == x0 {
		x0, x1 = x0-1, x1+1
	}
	return x0, x1, y0, y1, ok
}

// share is where v lies between two bounds, from 0 to 1. The bounds may be as far apart as numbers can be.
func share(v, low, high float64) float64 {
	span := high/2 - low/2
	if span == 0 || math.IsInf(span, 0) {
		return 0.5
	}
	return min(1, max(0, (v/2-low/2)/span))
}

// Number is v in few characters: three to five of its digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1e5 || a < 0.1:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// levels of a sparkline, from the lowest.
var (
	levels      = []rune("▁▂▃▄▅▆▇█")
	asciiLevels = []rune("_.-=^")
)

// Spark is a line of so many characters, or fewer, that shows how numbers went: their means in so many stretches. Numbers that are not finite are
// left out. ascii: without block characters.
func Spark(values []float64, width int, ascii bool) string {
	var v []float64
	for _, x := range values {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			v = append(v, x)
		}
	}
	if len(v) == 0 || width <= 0 {
		return ""
	}
	if len(v) > width {
		means := make([]float64, width)
		for i := range means {
			from, to := i*len(v)/width, (i+1)*len(v)/width
			for _, x := range v[from:to] {
				means[i] += x / float64(to-from)
			}
		}
		v = means
	}
	of := levels
	if ascii {
		of = asciiLevels
	}
	low, high := v[0], v[0]
	for _, x := range v {
		low, high = min(low, x), max(high, x)
	}
	var b strings.Builder
	for _, x := range v {
		at := 0
		if high > low {
			at = int(math.Round(share(x, low, high) * float64(len(of)-1)))
		}
		b.WriteRune(of[at])
	}
	return b.String()
}

// Bar is a bar of so many characters, done of all. It is ASCII, which a screen reader and every font know.
func Bar(done, all, width int) string {
	if width <= 0 {
		return ""
	}
	n := 0
	if all > 0 {
		n = max(0, min(width, int(float64(done)/float64(all)*float64(width))))
	}
	return strings.Repeat("#", n) + strings.Repeat(".", width-n)
}
