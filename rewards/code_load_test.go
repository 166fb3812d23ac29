package rewards

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// What an answer may take is the processor's time: on a machine with other work, of which a code that sleeps is the picture, a right answer
// stays right. The wall clock ends it all the same.
func TestCodeTestsOnABusyMachine(t *testing.T) {
	for name, c := range map[string]struct {
		tests, answer string
		wall, value   float64
	}{
		"slow by the clock":          {answer: "import time\ndef f(n):\n    time.sleep(1.3)\n    return 2 * n", value: 1},
		"slow program":               {tests: "program", answer: "import time\ntime.sleep(1.3)\nprint(2)", value: 1},
		"much of the processor":      {answer: "def f(n):\n    while True: pass", value: 0},
		"a program of it":            {tests: "program", answer: "while True: pass", value: 0},
		"beyond the wall":            {answer: "import time\ndef f(n):\n    time.sleep(100)\n    return 2 * n", wall: 2, value: 0},
		"a program beyond the wall":  {tests: "program", answer: "import time\ntime.sleep(100)\nprint(2)", wall: 2, value: 0},
		"within, with tests between": {answer: "import time\ndef f(n):\n    time.sleep(.7)\n    return 2 * n", wall: 20, value: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tests any = []any{"assert f(1) == 2", "assert f(2) == 4"}
			if c.tests != "" {
				tests = []any{map[string]any{"input": "", "output": "2"}}
			}
			reward := codeReward(t, map[string]any{"timeout": 1, "wall": c.wall})
			start := time.Now()
			got, err := reward.Score(t.Context(), Input{Task: trajectory.Task{ID: "t", Fields: map[string]any{"tests": tests}}, Trajectory: answered(c.answer)})
			require.NoError(t, err)
			require.Equal(t, c.value, got.Value)
			require.Less(t, time.Since(start), time.Minute, "the limits hold")
		})
	}
	b := Prebuilt().Builder(t.Context(), resources.New(resources.Options{}))
	_, err := b.Make("code_tests", map[string]any{"timeout": 5, "wall": 1})
	require.ErrorContains(t, err, "the parameter wall is 1; allowed is at least timeout, 5 seconds, or 0 for 3 times that, at least 20")
}

// A run that sleeps is ended by the clock soon: it holds a place of the gradings, and the deadline of the reward stands still meanwhile.
func TestCodeTestsWall(t *testing.T) {
	for timeout, want := range map[float64]float64{1: 20, 10: 30, 100: 300} {
		require.Equal(t, want, codeTests{codeTestsParams: codeTestsParams{Timeout: timeout}}.wall())
	}
	require.Equal(t, 7., codeTests{codeTestsParams: codeTestsParams{Timeout: 5, Wall: 7}}.wall())
}

// As many gradings run at once as the job says, and waiting for a place is no time of the reward.
func TestGradingsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resources.New(resources.Options{Gradings: 2})
		var mu sync.Mutex
		running, most := 0, 0
		graded := NewFunc("graded", func(ctx context.Context, _ Input) (float64, error) {
			defer offTheClock(ctx)()
			leave, err := r.Grade(ctx)
			if err != nil {
				return 0, err
			}
			defer leave()
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(50 * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return 1, ctx.Err()
		})
		errs := make(chan error, 20)
		for range 20 {
			go func() {
				_, err := Run(t.Context(), time.Minute, graded, Input{})
				errs <- err
			}()
		}
		for range 20 {
			require.NoError(t, <-errs)
		}
		require.Equal(t, 2, most)
	})
}

// The rest of a reward's time goes on after what does not count; the caller's end ends everything at once.
func TestOffTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := NewFunc("slow", func(ctx context.Context, _ Input) (float64, error) {
			time.Sleep(30 * time.Second)
			on := offTheClock(ctx)
			_, has := ctx.Deadline()
			require.False(t, has)
			time.Sleep(time.Hour)
			on()
			on()
			ends, has := ctx.Deadline()
			require.True(t, has)
			require.Equal(t, 30*time.Second, time.Until(ends))
			<-ctx.Done()
			return 0, ctx.Err()
		})
		start := time.Now()
		_, err := Run(t.Context(), time.Minute, slow, Input{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour+time.Minute, time.Since(start))

		ctx, cancel := context.WithCancelCause(t.Context())
		still := NewFunc("still", func(ctx context.Context, _ Input) (float64, error) {
			defer offTheClock(ctx)()
			inner, stop := context.WithTimeout(ctx, time.Hour)
			defer stop()
			<-inner.Done()
			return 0, inner.Err()
		})
		time.AfterFunc(time.Second, func() { cancel(errors.New("stop")) })
		_, err = Run(ctx, time.Minute, still, Input{})
		require.ErrorIs(t, err, context.Canceled)
	})
}
