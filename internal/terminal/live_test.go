package terminal_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/internal/terminal/terminaltest"
)

const never = time.Hour

// Text of two streams scrolls above the block, which stands once, at the bottom, and is gone at the end.
func TestABlockStandsBelowTheText(t *testing.T) {
	s := &terminaltest.Screen{Width: 20, Height: 10}
	n := 0
	l := terminal.NewLive(s, func() (int, int, bool) { return s.Width, s.Height, true }, never, func(columns, _ int) []string {
		return []string{fmt.Sprintf("bar %d", n), strings.Repeat("=", 100), "漢字漢字漢字漢字漢字漢字"}[:2+n%2]
	})
	out, errs := l.Above(s), l.Above(io.Writer(struct{ io.Writer }{s}))
	require.Equal(t, "bar 0\n"+strings.Repeat("=", 19)+"\n", s.String())
	for n = 1; n <= 30; n++ {
		_, err := fmt.Fprintf(out, "step %d\n", n)
		require.NoError(t, err)
		if n%10 == 0 {
			_, err = fmt.Fprintf(errs, "note: a line that is longer than the terminal is wide\n")
			require.NoError(t, err)
		}
		l.Draw()
		require.Equal(t, 1, strings.Count(s.String(), "bar"), s.String())
	}
	l.Close()
	l.Close()
	text := s.String()
	require.NotContains(t, text, "bar")
	require.Equal(t, 30, strings.Count(text, "step "))
	require.Equal(t, 3, strings.Count(text, "note: a line that is\n longer than the te\nrminal is wide")+strings.Count(text, "note: a line that is"+"\n"+" longer than the ter\nminal is wide"))
	_, err := fmt.Fprintln(out, "after")
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(s.String(), "after\n"))
}

// A line that is not ended yet is not torn: the block waits for its end.
func TestABlockWaitsForTheEndOfALine(t *testing.T) {
	s := &terminaltest.Screen{Width: 40, Height: 10}
	l := terminal.NewLive(s, func() (int, int, bool) { return s.Width, s.Height, true }, never, func(int, int) []string { return []string{"block"} })
	out := l.Above(s)
	_, _ = io.WriteString(out, "delete it? [y/N] ")
	l.Draw()
	require.Equal(t, "delete it? [y/N]", s.String())
	_, _ = io.WriteString(out, "yes\n")
	require.Equal(t, "delete it? [y/N] yes\nblock\n", s.String())
	l.Close()
	require.Equal(t, "delete it? [y/N] yes\n", s.String())
}

// A terminal of few rows keeps a row for the text, and one that is another process's now is left alone.
func TestABlockHasRoom(t *testing.T) {
	s := &terminaltest.Screen{Width: 40, Height: 3}
	mine := true
	l := terminal.NewLive(s, func() (int, int, bool) { return s.Width, s.Height, mine }, never, func(int, int) []string { return []string{"1", "2", "3", "4", "5"} })
	require.Equal(t, "1\n2\n", s.String())
	_, _ = fmt.Fprintln(l.Above(s), "text")
	require.Equal(t, "text\n1\n2\n", s.String())
	mine = false
	l.Draw()
	_, _ = fmt.Fprintln(l.Above(s), "behind the shell")
	require.Equal(t, "text\n1\n2\nbehind the shell\n", s.String())
	mine = true
	l.Draw()
	require.Equal(t, "text\n1\n2\nbehind the shell\n1\n2\n", s.String(), "what the shell wrote is not taken away")
	l.Forget()
	l.Close()
	require.Equal(t, "text\n1\n2\nbehind the shell\n1\n2\n", s.String())
}

// Writers and the clock draw at the same time; each text comes whole.
func TestABlockIsSafeForConcurrentUse(t *testing.T) {
	var b bytes.Buffer
	l := terminal.NewLive(&b, func() (int, int, bool) { return 80, 24, true }, time.Millisecond, func(int, int) []string { return []string{"block"} })
	out := l.Above(&b)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for k := range 50 {
				_, _ = fmt.Fprintf(out, "line %d-%d\n", i, k)
			}
		})
	}
	all.Wait()
	l.Close()
	for i := range 8 {
		for k := range 50 {
			require.Contains(t, b.String(), fmt.Sprintf("line %d-%d\n", i, k))
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A terminal that is closed ends nothing: whoever writes is told, as without a block.
func TestABlockOfAClosedTerminal(t *testing.T) {
	l := terminal.NewLive(broken{}, func() (int, int, bool) { return 80, 24, true }, never, func(int, int) []string { return []string{"block"} })
	n, err := l.Above(broken{}).Write([]byte("text\n"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Zero(t, n)
	l.Close()
}

func TestCutAndJoin(t *testing.T) {
	require.Equal(t, "ab", terminal.Cut("abc", 2))
	require.Equal(t, "a漢", terminal.Cut("a漢字", 4))
	require.Equal(t, "", terminal.Cut("abc", 0))
	require.Equal(t, "", terminal.Cut("abc", -3))
	require.Equal(t, "a  bb", terminal.Join(6, "a", "", "bb", "ccc"))
	require.Equal(t, "a  c", terminal.Join(4, "a", "bbb", "c"))
	require.Equal(t, "longer", terminal.Join(3, "longer", "b"))
}
