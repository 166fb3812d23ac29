package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func line(name string, y ...float64) Line {
	l := Line{Name: name, Y: y}
	for i := range y {
		l.X = append(l.X, float64(i+1))
	}
	return l
}

func TestSpark(t *testing.T) {
	require.Equal(t, "▁▃▅█", Spark([]float64{0, 1, 2, 3.5}, 10, false))
	require.Equal(t, "_-^", Spark([]float64{-1, 0, 1}, 10, true))
	require.Equal(t, "▁█", Spark([]float64{0, 0, math.NaN(), 4, 4, math.Inf(1)}, 2, false), "means of two stretches")
	require.Equal(t, "▁▁▁", Spark([]float64{5, 5, 5}, 9, false), "flat")
	require.Empty(t, Spark(nil, 5, false))
	require.Empty(t, Spark([]float64{1}, 0, false))
	require.Equal(t, "▁█", Spark([]float64{-math.MaxFloat64, math.MaxFloat64}, 5, false))
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", -12: "-12", 12345: "12345", 123456: "1.23e+05", 123.45: "123.5", 12.3456: "12.346", 1.23456: "1.235", 0.5: "0.500", 0.123456: "0.123",
		0.0994: "0.0994", 0.0124: "0.0124", -0.0094: "-0.0094", 0.0015: "0.0015", 0.00149: "0.00149", 0.001: "0.001", 0.000123: "0.000123", 1.23456e-7: "1.23e-07",
	} {
		require.Equal(t, want, Number(v))
	}
}

func TestBar(t *testing.T) {
	require.Equal(t, "#####.....", Bar(5, 10, 10))
	require.Equal(t, "....", Bar(0, 0, 4))
	require.Equal(t, "####", Bar(9, 3, 4))
	require.Equal(t, "....", Bar(-3, 3, 4))
	require.Empty(t, Bar(1, 1, 0))
	require.Empty(t, Bar(1, 1, -5))
}

// A rising line goes from the lower left corner to the upper right one.
func TestText(t *testing.T) {
	got := Chart{Title: "reward/mean", Lines: []Line{line("a", 0, 1, 2)}}.Text(Screen{Width: 8, Height: 3})
	require.Equal(t, []string{
		"reward/mean",
		"2 ┤     ⢀⡠⠊",
		"  ┤   ⣀⠔⠁",
		"0 ┤⡠⠔⠉",
		"  └────────",
		"   1      3",
	}, got)
	got = Chart{Title: "x", Lines: []Line{line("a", 0, 1), line("b", 1, 0)}}.Text(Screen{Width: 8, Height: 3, ASCII: true})
	require.Equal(t, []string{
		"x",
		"1 |oo    **",
		"  |  oooo",
		"0 |**    oo",
		"  +--------",
		"   1      2",
		"   * a",
		"   o b",
	}, got)
	coloured := strings.Join(Chart{Lines: []Line{line("a", 0, 1), line("b", 1, 0)}}.Text(Screen{Width: 8, Height: 3, Colours: true}), "\n")
	require.Contains(t, coloured, "\x1b[36m━━\x1b[0m a")
	require.Equal(t, []string{"none", "  no numbers"}, Chart{Title: "none"}.Text(Screen{}))
}

// Whatever the numbers, a drawing has as many lines as it should, none of which is wider than it may be.
func TestTextOfAnyNumbers(t *testing.T) {
	for _, y := range [][]float64{{0}, {5, 5, 5}, {1e-300, 2e-300}, {-math.MaxFloat64, math.MaxFloat64}, {1e17, 1e17 + 16}, {-1, -1}, {0.2, 0.2}, make([]float64, 10_000)} {
		got := Chart{Lines: []Line{line("a", y...)}}.Text(Screen{Width: 20, Height: 5})
		require.Len(t, got, 8, "%v", y[:1])
		for _, s := range got {
			require.LessOrEqual(t, utf8.RuneCountInString(s), 20+12, "%q", s)
			require.NotContains(t, s, "NaN")
		}
		for _, write := range []func(io.Writer, []Chart) error{SVG, PNG} {
			var b bytes.Buffer
			require.NoError(t, write(&b, []Chart{{Lines: []Line{line("a", y...)}}}))
			require.NotContains(t, b.String(), "NaN")
		}
	}
}

// The lines of a chart are told apart in a picture and on a terminal, by their strokes there and in the legend.
func TestLinesAreToldApart(t *testing.T) {
	chart := Chart{}
	for i := range MostLines {
		chart.Lines = append(chart.Lines, line(fmt.Sprint("run ", i), float64(i), float64(i)+1))
	}
	var b bytes.Buffer
	require.NoError(t, SVG(&b, []Chart{chart}))
	strokes := map[string]int{}
	for _, m := range regexp.MustCompile(`stroke="([^"]+)" stroke-width="3"`).FindAllStringSubmatch(b.String(), -1) {
		strokes[m[1]]++
	}
	require.Len(t, strokes, MostLines)
	for _, s := range []Screen{{Width: 20, Height: 5, Colours: true}, {Width: 20, Height: 5}} {
		marks := map[string]bool{}
		got := chart.Text(s)
		for _, legend := range got[len(got)-MostLines:] {
			mark, _, _ := strings.Cut(legend, " run ")
			marks[mark] = true
		}
		require.Len(t, marks, MostLines)
	}
}

// A drawing is XML whatever the names say; nothing of them becomes an element.
func TestSVG(t *testing.T) {
	var b bytes.Buffer
	hostile := `</text><script>alert(1)</script>"&` + "\x1b\x00"
	require.NoError(t, SVG(&b, []Chart{{Title: hostile, Lines: []Line{line(hostile, 1, 2, 3), line("b", 3, 2, 1)}}, {Title: "second"}}))
	elements := map[string]int{}
	d := xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	require.Zero(t, elements["script"])
	require.Equal(t, 1, elements["svg"])
	require.Equal(t, 5+1+2+2, elements["polyline"], "grid, axes, lines, legend")
}

// The lines of a picture have their colours where the points are.
func TestPNG(t *testing.T) {
	var b bytes.Buffer
	charts := []Chart{{Title: "t", Lines: []Line{line("a", 0, 1), line("b", 1, 0)}}, {Title: "u", Lines: []Line{line("a", 2)}}}
	require.NoError(t, PNG(&b, charts))
	img, err := png.Decode(&b)
	require.NoError(t, err)
	require.Equal(t, chartWidth, img.Bounds().Dx())
	require.Equal(t, heights(charts), img.Bounds().Dy())
	found := map[int]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, bl, _ := img.At(x, y).RGBA()
			for n, c := range palette {
				if r>>8 == uint32(c.R) && g>>8 == uint32(c.G) && bl>>8 == uint32(c.B) {
					found[n]++
				}
			}
		}
	}
	require.Greater(t, found[0], 500)
	require.Greater(t, found[1], 500)
	require.Zero(t, found[2])
}
