package web

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestTextOf(t *testing.T) {
	page := `<!DOCTYPE html><html><head><title>A &amp; B
 title</title><style>p { color: red }</style><script>if (a < b) { document.write("<p>no</p>") }</script></head>
<body><nav><a href=/>Home</a></nav><h1>Heading</h1><p>One
   line,	<b>bold</b>, <i>&eacute;</i>.<br>Second&nbsp;line.</p><noscript>off</noscript>
<ul><li>first<li> second <p>more</p></ul><table><tr><th>a<th>b<tr><td>1</td><td>2</td></tr></table>
<pre>x  =  1
  y</pre><svg><title>no</title><text>no</text></svg><template><p>no</p></template><div><div>deep</div></div><!-- no --><textarea>no</textarea>tail`
	title, text, err := textOf(strings.NewReader(page))
	require.NoError(t, err)
	require.Equal(t, "A & B title", title)
	require.Equal(t, "Home\nHeading\nOne line, bold, é.\nSecond line.\n- first\n- second\nmore\na | b\n1 | 2\nx  =  1\n  y\ndeep\ntail", text)
	_, deep, err := textOf(strings.NewReader(strings.Repeat("<div>", 1<<18) + "x"))
	require.NoError(t, err)
	require.Equal(t, "x", deep)
}

// A cell without text keeps its place in the row; a row without text is left out.
func TestEmptyCells(t *testing.T) {
	_, text, err := textOf(strings.NewReader(`<table><tr><th></th><th>A</th><th>B</th></tr><tr><td>x<td>1<td></tr>
<tr><td><td> </td><td>9</td></tr><tr><td></td><td></td></tr><tr><td><div>alone</div></td></tr></table>`))
	require.NoError(t, err)
	require.Equal(t, "| A | B\nx | 1 |\n| | 9\nalone", text)
}

func FuzzTextOf(f *testing.F) {
	f.Add("<p>a<li>b<td>c<pre>d\ne</pre><script>f</script><title>g")
	f.Add("<svg><svg></svg>x</svg>y<br/>z&amp;&#0;")
	f.Fuzz(func(t *testing.T, page string) {
		title, text, err := textOf(strings.NewReader(page))
		require.NoError(t, err)
		for _, s := range []string{title, text} {
			require.NotContains(t, s, "\n\n")
			require.Equal(t, strings.TrimRight(s, "\n"), s)
		}
		if utf8.ValidString(page) {
			require.True(t, utf8.ValidString(title+text))
		}
	})
}
