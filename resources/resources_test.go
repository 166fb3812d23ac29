package resources

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a job needs of elsewhere is asked for at once, and everything that is missing is told, in the order of the job.
func TestBegin(t *testing.T) {
	r := New(Options{})
	require.NoError(t, r.Begin(t.Context()))
	second := make(chan struct{})
	r.OnBegin(func(context.Context) error { <-second; return errors.New("one") })
	r.OnBegin(func(context.Context) error { close(second); return nil })
	r.OnBegin(func(context.Context) error { return errors.New("three") })
	require.EqualError(t, r.Begin(t.Context()), "one\nthree")
}
