package panics

import (
	"errors"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

type node struct{ next *node }

// The error names the code, what it panicked with, and the line, whatever kind of panic it was.
func TestGuard(t *testing.T) {
	var none map[string]int
	var nobody *node
	list, at := []int{1}, 7
	for want, f := range map[string]func(){
		`^estimator mine panicked: boom, at \S+panics_test\.go:\d+$`:                                 func() { panic("boom") },
		`^estimator mine panicked: assignment to entry in nil map, at \S+panics_test\.go:\d+$`:       func() { none["x"] = 1 },
		`^estimator mine panicked: runtime error: index out of range .*, at \S+panics_test\.go:\d+$`: func() { list[at] = 1 },
		`^estimator mine panicked: runtime error: invalid memory .*, at \S+panics_test\.go:\d+$`:     func() { nobody.next = nil },
	} {
		err := Guard("estimator mine", func() error { f(); return nil })
		var caught *Error
		require.ErrorAs(t, err, &caught)
		require.Regexp(t, want, err.Error())
		require.Contains(t, string(caught.Stack), "panics_test.go")
	}
	wrong := errors.New("wrong")
	require.Equal(t, wrong, Guard("x", func() error { return wrong }))
	require.NoError(t, Guard("x", func() error { return nil }))
	require.Empty(t, Place(debug.Stack()), "a stack without a panic")
	require.Equal(t, "x panicked: y", (&Error{What: "x", Value: "y"}).Error())
}
