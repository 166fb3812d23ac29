package plot

import (
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// A chart of a picture, in pixels.
const (
	chartWidth  = 800
	chartHeight = 260
	marginLeft  = 76
	marginRight = 20
	marginTop   = 34
	marginFloor = 34
	legendLine  = 16
)

// palette tells lines apart for people who see colours differently (Okabe and Ito 2008, with grey for their yellow, which is hardly seen on white).
var palette = [MostLines]color.RGBA{
	{0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {213, 94, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255}, {153, 153, 153, 255},
}

var (
	ink  = color.RGBA{34, 34, 34, 255}
	grid = color.RGBA{221, 221, 221, 255}
)

// canvas is what a picture is drawn on.
type canvas interface {
	stroke(points [][2]float64, c color.RGBA, width float64)
	text(x, y, anchor float64, s string) // anchor is the part of the text that stands left of x
}

// height of a chart with its legend.
func (c Chart) height() int {
	if c.legend() {
		return chartHeight + legendLine*len(c.Lines)
	}
	return chartHeight
}

func heights(charts []Chart) (sum int) {
	for _, c := range charts {
		sum += c.height()
	}
	return sum
}

func draw(on canvas, charts []Chart) {
	top := 0.0
	for _, c := range charts {
		c.draw(on, top)
		top += float64(c.height())
	}
}

// draw draws a chart whose upper edge is at top.
func (c Chart) draw(on canvas, top float64) {
	on.text(marginLeft, top+20, 0, c.Title)
	x0, x1, y0, y1, ok := c.bounds()
	if !ok {
		on.text(marginLeft, top+chartHeight/2, 0, "no numbers")
		return
	}
	left, right, high, low := float64(marginLeft), float64(chartWidth-marginRight), top+marginTop, top+chartHeight-marginFloor
	x := func(v float64) float64 { return left + share(v, x0, x1)*(right-left) }
	y := func(v float64) float64 { return low - share(v, y0, y1)*(low-high) }
	const ticks = 4
	for i := range ticks + 1 {
		part := float64(i) / ticks
		v := y0*(1-part) + y1*part
		on.stroke([][2]float64{{left, y(v)}, {right, y(v)}}, grid, 1)
		on.text(left-8, y(v)+4, 1, Number(v))
		v = math.Round(x0*(1-part) + x1*part) // a step
		on.text(x(v), low+18, part, Number(v))
	}
	on.stroke([][2]float64{{left, high}, {left, low}, {right, low}}, ink, 1)
	for n, l := range c.Lines {
		colour := palette[n%len(palette)]
		var points [][2]float64
		for i := range l.X {
			points = append(points, [2]float64{x(l.X[i]), y(l.Y[i])})
		}
		if len(points) == 1 {
			points = [][2]float64{{points[0][0] - 2, points[0][1]}, {points[0][0] + 2, points[0][1]}}
		}
		on.stroke(points, colour, 2)
		if c.legend() {
			at := top + chartHeight + float64(legendLine*n)
			on.stroke([][2]float64{{left, at}, {left + 24, at}}, colour, 3)
			on.text(left+32, at+4, 0, l.Name)
		}
	}
}

// SVG writes charts one below the other.
func SVG(w io.Writer, charts []Chart) error {
	var b strings.Builder
	all := heights(charts)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, all, chartWidth, all)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWidth, all)
	draw(&svg{&b}, charts)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

type svg struct{ b *strings.Builder }

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

func (s *svg) stroke(points [][2]float64, c color.RGBA, width float64) {
	fmt.Fprintf(s.b, `<polyline fill="none" stroke="%s" stroke-width="%g" stroke-linejoin="round" points="`, hex(c), width)
	for i, p := range points {
		if i > 0 {
			s.b.WriteByte(' ')
		}
		fmt.Fprintf(s.b, "%.1f,%.1f", p[0], p[1])
	}
	s.b.WriteString("\"/>\n")
}

func (s *svg) text(x, y, anchor float64, text string) {
	as := "middle"
	switch anchor {
	case 0:
		as = "start"
	case 1:
		as = "end"
	}
	fmt.Fprintf(s.b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">`, x, y, as, hex(ink))
	_ = xml.EscapeText(s.b, []byte(text)) // a builder takes everything
	s.b.WriteString("</text>\n")
}

// PNG writes charts one below the other. Its font has ASCII.
func PNG(w io.Writer, charts []Chart) error {
	img := image.NewRGBA(image.Rect(0, 0, chartWidth, heights(charts)))
	for i := range img.Pix {
		img.Pix[i] = 255
	}
	draw(&raster{img}, charts)
	return png.Encode(w, img)
}

type raster struct{ img *image.RGBA }

// stroke draws each piece of a line as a rectangle, which is longer by half its width at both ends, so that pieces meet.
func (r *raster) stroke(points [][2]float64, c color.RGBA, width float64) {
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		dx, dy := b[0]-a[0], b[1]-a[1]
		length := math.Hypot(dx, dy)
		if length == 0 {
			continue
		}
		ux, uy := dx/length*width/2, dy/length*width/2
		corners := [][2]float64{
			{a[0] - ux - uy, a[1] - uy + ux}, {b[0] + ux - uy, b[1] + uy + ux}, {b[0] + ux + uy, b[1] + uy - ux}, {a[0] - ux + uy, a[1] - uy - ux},
		}
		x0, y0, x1, y1 := corners[0][0], corners[0][1], corners[0][0], corners[0][1]
		for _, p := range corners {
			x0, y0, x1, y1 = min(x0, p[0]), min(y0, p[1]), max(x1, p[0]), max(y1, p[1])
		}
		box := image.Rect(int(x0)-1, int(y0)-1, int(x1)+2, int(y1)+2).Intersect(r.img.Bounds())
		if box.Empty() {
			continue
		}
		z := vector.NewRasterizer(box.Dx(), box.Dy())
		for k, p := range corners {
			x, y := float32(p[0])-float32(box.Min.X), float32(p[1])-float32(box.Min.Y)
			if k == 0 {
				z.MoveTo(x, y)
			} else {
				z.LineTo(x, y)
			}
		}
		z.ClosePath()
		z.Draw(r.img, box, image.NewUniform(c), image.Point{})
	}
}

func (r *raster) text(x, y, anchor float64, text string) {
	face := basicfont.Face7x13
	d := font.Drawer{Dst: r.img, Src: image.NewUniform(ink), Face: face}
	x -= anchor * float64(d.MeasureString(text)) / 64
	d.Dot = fixed.P(int(x), int(y))
	d.DrawString(text)
}
