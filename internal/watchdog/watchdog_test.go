package watchdog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReportNamesPartsAndTheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard()
		ctx := b.On(t.Context())
		require.Equal(t, "waiting for nothing outside the process", Report(b.Lines()))
		engine := Enter(ctx, "engine", "train-3-2-1-0")
		time.Sleep(15 * time.Second)
		tool := Enter(ctx, "tool calculator", "train-3-0-0")
		time.Sleep(20 * time.Second)
		Enter(ctx, "tool calculator", "train-3-0-1")
		Enter(ctx, "trainer", "step 4")
		time.Sleep(10 * time.Second)
		require.Equal(t, "waiting for engine: train-3-2-1-0 for 45s; tool calculator: 2, the oldest train-3-0-0 for 30s; trainer: step 4 for 10s", Report(b.Lines()))
		tool.Leave()
		tool.Leave() // a second time changes nothing
		engine.Leave()
		require.Equal(t, "waiting for tool calculator: train-3-0-1 for 10s; trainer: step 4 for 10s", Report(b.Lines()))
	})
}

func TestMoveKeepsTheTimeOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard()
		ctx := b.On(t.Context())
		old := Enter(ctx, "engine", "old")
		time.Sleep(5 * time.Second)
		young := Enter(ctx, "engine", "young")
		Move(young.In(ctx), "engine http://b")
		Move(old.In(ctx), "engine http://b") // comes later and is older
		require.Equal(t, "waiting for engine http://b: 2, the oldest old for 5s", Report(b.Lines()))
		Move(ctx, "engine http://c") // a context without a wait
		old.Leave()
		Move(old.In(ctx), "engine http://c") // too late
		require.Equal(t, []Line{{"engine http://b", 1, "young", 0}}, b.Lines())
	})
}

func TestWithoutABoardNothingHappens(t *testing.T) {
	w := Enter(t.Context(), "tool", "x")
	require.Nil(t, w)
	Move(w.In(t.Context()), "engine")
	w.Leave()
	require.Zero(t, testing.AllocsPerRun(100, func() { Enter(context.Background(), "tool", "x").Leave() }))
}

func TestWatchSpeaksWhenNothingMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard()
		watch, stop := context.WithCancel(t.Context())
		ask := make(chan os.Signal, 1)
		var printed []string
		var mu sync.Mutex
		var done sync.WaitGroup
		done.Go(func() {
			b.Watch(watch, time.Minute, ask, func(line string) { mu.Lock(); printed = append(printed, line); mu.Unlock() })
		})
		said := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := printed
			printed = nil
			return out
		}
		ctx := b.On(t.Context())
		for range 30 { // something moves twice a minute
			Enter(ctx, "engine", "x").Leave()
			time.Sleep(30 * time.Second)
		}
		require.Empty(t, said())
		w := Enter(ctx, "reward judge", "train-0-0-0")
		time.Sleep(50 * time.Second)
		require.Empty(t, said())
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"nothing moved for 1m0s; waiting for reward judge: train-0-0-0 for 1m15s"}, said())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"nothing moved for 2m0s; waiting for reward judge: train-0-0-0 for 2m15s"}, said())
		Move(w.In(ctx), "reward other") // is no movement
		time.Sleep(time.Minute)
		require.Len(t, said(), 1)
		w.Leave()
		time.Sleep(50 * time.Second)
		require.Empty(t, said())
		ask <- syscall.SIGUSR1
		require.Equal(t, []string{"waiting for nothing outside the process"}, said())
		stop()
		done.Wait()
	})
}

func TestWatchOfZeroOnlyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard()
		watch, stop := context.WithCancel(t.Context())
		ask := make(chan os.Signal, 1)
		said := make(chan string, 10)
		var done sync.WaitGroup
		done.Go(func() { b.Watch(watch, 0, ask, func(line string) { said <- line }) })
		Enter(b.On(t.Context()), "store", "step 1")
		time.Sleep(1000 * time.Hour)
		require.Empty(t, said)
		ask <- syscall.SIGUSR1
		require.Equal(t, "waiting for store: step 1 for 1000h0m0s", <-said)
		stop()
		done.Wait()
	})
}

// The board agrees with a list that is searched for the oldest wait.
func TestBoardAgreesWithItsTwin(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			b := NewBoard()
			ctx := b.On(t.Context())
			var live []*Wait
			for i := range 300 {
				time.Sleep(time.Duration(1+r.IntN(5)) * time.Second)
				k := r.IntN(max(1, len(live)))
				switch op := r.IntN(3); {
				case op == 0 || len(live) == 0:
					live = append(live, Enter(ctx, fmt.Sprint("p", r.IntN(4)), fmt.Sprint("w", i)))
				case op == 1:
					Move(live[k].In(ctx), fmt.Sprint("p", r.IntN(4)))
				default:
					live[k].Leave()
					live = slices.Delete(live, k, k+1)
				}
				want := map[string]Line{}
				for _, w := range live {
					l := want[w.part]
					l.Part, l.Count = w.part, l.Count+1
					if d := time.Since(w.since); l.Oldest == "" || d > l.For || d == l.For && w.who < l.Oldest {
						l.Oldest, l.For = w.who, d
					}
					want[w.part] = l
				}
				got := b.Lines()
				require.Len(t, got, len(want))
				for i, l := range got {
					require.Equal(t, want[l.Part], l)
					require.True(t, i == 0 || got[i-1].For >= l.For)
				}
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	b := NewBoard()
	ctx := b.On(t.Context())
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for range 200 {
				w := Enter(ctx, fmt.Sprint("tool ", i%3), "x")
				Move(w.In(ctx), "engine")
				b.Lines()
				w.Leave()
			}
		})
	}
	all.Wait()
	require.Empty(t, b.Lines())
}

func BenchmarkWait(b *testing.B) {
	ctx := NewBoard().On(context.Background())
	for range 10_000 { // others that last
		Enter(ctx, "engine", "x")
	}
	b.ReportAllocs()
	for b.Loop() {
		w := Enter(ctx, "engine", "train-0-0-0-1")
		Move(w.In(ctx), "engine http://127.0.0.1:8000")
		w.Leave()
	}
}
