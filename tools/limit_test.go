package tools

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// order lets calls of trajectories in one after the other and says who came in when. Call i of trajectory t asks at the moment i.
func order(t *testing.T, g *gate, asks ...string) (came []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, who := range asks {
		all.Go(func() {
			if g.enter(t.Context(), who) != nil {
				return
			}
			mu.Lock()
			came = append(came, fmt.Sprintf("%s%d", who, i))
			mu.Unlock()
			time.Sleep(time.Second)
			g.leave()
		})
		synctest.Wait() // so that they ask in this order
	}
	all.Wait()
	return came
}

func TestTrajectoriesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 0)
		require.Equal(t, []string{"a0", "a1", "b4", "c5", "a2", "b6", "a3"}, order(t, g, "a", "a", "a", "a", "b", "c", "b"))
		require.Empty(t, g.waiting)
		require.Zero(t, g.inside)
	})
}

func TestPlacesAreNeverExceeded(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			places := 1 + r.IntN(4)
			g := newGate(places, 0)
			var mu sync.Mutex
			inside, most, done := 0, 0, 0
			var all sync.WaitGroup
			for range 60 {
				who, stay, patience := fmt.Sprint(r.IntN(5)), time.Duration(r.IntN(5))*time.Second, time.Duration(1+r.IntN(100))*time.Second
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					if g.enter(ctx, who) != nil {
						return
					}
					mu.Lock()
					inside, done = inside+1, done+1
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(stay)
					mu.Lock()
					inside--
					mu.Unlock()
					g.leave()
				})
			}
			all.Wait()
			require.Equal(t, places, most)
			require.Greater(t, done, places)
			require.Zero(t, g.inside)
			require.Empty(t, g.queue)
			require.Empty(t, g.waiting)
		})
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(0, 4) // one each 250 ms
		start := time.Now()
		var at []time.Duration
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if g.enter(t.Context(), "x") == nil {
					mu.Lock()
					at = append(at, time.Since(start))
					mu.Unlock()
					g.leave()
				}
			})
		}
		all.Wait()
		const step = 250 * time.Millisecond
		require.Equal(t, []time.Duration{0, step, 2 * step, 3 * step, 4 * step}, at)
		require.Nil(t, g.timer)

		time.Sleep(time.Hour) // what was not used does not add up, and who gives up leaves no timer
		ctx, cancel := context.WithTimeout(t.Context(), step/2)
		defer cancel()
		require.NoError(t, g.enter(ctx, "x"))
		require.ErrorIs(t, g.enter(ctx, "x"), context.DeadlineExceeded)
		require.Nil(t, g.timer)
	})
}
