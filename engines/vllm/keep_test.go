package vllm

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/engines"
)

// fakeServer is the variable that makes this test binary a scripted vLLM.
const fakeServer = "AGENTFLY_FAKE_VLLM"

// serveFake is `vllm serve`: it answers at --port until it is killed. A file "refuse" in the folder of the variable makes it
// end at once; one "dead" with its process says that its engine died.
func serveFake(args []string) int {
	folder := os.Getenv(fakeServer)
	if _, err := os.Stat(filepath.Join(folder, "refuse")); err == nil {
		fmt.Println("the device is gone")
		return 3
	}
	port := args[slices.Index(args, "--port")+1]
	f := &fake{weights: 1, version: "default", cache: map[string]float64{}, routes: allRoutes, resumed: make(chan struct{})}
	close(f.resumed)
	fmt.Println("PYTHONPATH=" + os.Getenv("PYTHONPATH"))
	fmt.Println(http.ListenAndServe("127.0.0.1:"+port, guarded(f)))
	return 1
}

// guarded is what the extension's Guard does, of which TestRealGuard asks the same.
func guarded(f *fake) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if pid, err := os.ReadFile(filepath.Join(os.Getenv(fakeServer), "dead")); q.URL.Path == "/health" && err == nil && string(pid) == strconv.Itoa(os.Getpid()) {
			http.Error(w, "", http.StatusServiceUnavailable)
			return
		}
		if q.URL.Path != "/health" && q.Header.Get("Authorization") != "Bearer "+os.Getenv("VLLM_API_KEY") {
			http.Error(w, `{"error": "Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		f.ServeHTTP(w, q)
	})
}

// keepFake keeps a scripted server in a process of its own. What it is told goes to notes.
func keepFake(t *testing.T, notes *[]string, change func(o *ServeOptions)) *Kept {
	t.Helper()
	folder := t.TempDir()
	t.Setenv(fakeServer, folder)
	var mu sync.Mutex
	o := ServeOptions{Command: os.Args[0], Model: "m", Folder: folder, Timeout: 20 * time.Second, Backoff: time.Millisecond}
	if change != nil {
		change(&o)
	}
	k, err := Keep(t.Context(), o, func(s string) {
		mu.Lock()
		defer mu.Unlock()
		*notes = append(*notes, s)
	})
	require.NoError(t, err)
	return k
}

func (k *Kept) kill(t *testing.T) { require.NoError(t, syscall.Kill(k.PID(), syscall.SIGKILL)) }

// The server is killed with requests in flight: it comes back with its first weights, gets the current ones, and every
// request ends as if nothing had happened. No goroutine and no process is left.
func TestKeptServerIsKilled(t *testing.T) {
	before := goleak.IgnoreCurrent()
	var notes []string
	k := keepFake(t, &notes, nil)
	e, err := New(t.Context(), Options{
		URLs: []string{k.URL()}, APIKey: k.APIKey(), Gone: k.Gone, HealthEvery: 5 * time.Millisecond, Backoff: time.Millisecond, Attempts: 50, Patience: 20 * time.Second,
	})
	require.NoError(t, err)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 5, 7)))
	const n = 8
	completions, errs := make([]engines.Completion, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			q := request(100, 1, 2, int32(i%fakeVocab))
			completions[i], errs[i] = e.Generate(t.Context(), q)
		})
	}
	time.Sleep(30 * time.Millisecond) // of about 100
	first := k.PID()
	k.kill(t)
	all.Wait()
	for i := range n {
		require.NoError(t, errs[i])
		require.Equal(t, wantTokens(5, request(100, 1, 2, int32(i%fakeVocab))), completions[i].TokenIDs)
		require.Equal(t, int32(7), completions[i].Versions[0])
	}
	within(t, "it is noticed", func() bool { return k.Restarts() == 1 })
	require.NotEqual(t, first, k.PID())

	// and an update that finds the server dead waits for it
	k.kill(t)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 6, 8)))
	c, err := e.Generate(t.Context(), request(6, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, wantTokens(6, request(6, 1, 2, 3)), c.TokenIDs)
	within(t, "it is noticed", func() bool { return k.Restarts() == 2 }) // the engine may see the answer first
	require.NoError(t, e.Close())
	require.NoError(t, k.Close())
	require.Contains(t, notes[0], "the server ended: signal: killed; its log "+k.Log())
	require.Contains(t, notes[0], "start 1 of 3 again in 1ms")
	require.Contains(t, notes[1], k.URL()+" answers again")
	require.ErrorIs(t, syscall.Kill(k.PID(), 0), syscall.ESRCH)
	goleak.VerifyNone(t, before)
}

// A server whose engine died and that does not end by itself is ended, and started again.
func TestKeptServerWhoseEngineDied(t *testing.T) {
	var notes []string
	k := keepFake(t, &notes, nil)
	require.NoError(t, os.WriteFile(filepath.Join(k.options.Folder, "dead"), []byte(strconv.Itoa(k.PID())), 0o600))
	require.Eventually(t, func() bool { return k.Restarts() == 1 }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, k.Close())
	require.Len(t, notes, 2)
	require.Contains(t, notes[0], "the server ended: signal: killed, by AgentFly: its engine died, and it did not end by itself within 5s; its log ")
}

// One that does not come up again ends the run with a reason, at once and not after the patience.
func TestKeptServerIsGone(t *testing.T) {
	var notes []string
	k := keepFake(t, &notes, func(o *ServeOptions) { o.Restarts = 2 })
	e, err := New(t.Context(), Options{URLs: []string{k.URL()}, APIKey: k.APIKey(), Gone: k.Gone, HealthEvery: 5 * time.Millisecond, Backoff: time.Millisecond, Attempts: 50, Patience: time.Hour})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(k.options.Folder, "refuse"), nil, 0o644))
	k.kill(t)
	_, err = e.Generate(t.Context(), request(6, 1, 2, 3))
	require.ErrorContains(t, err, "no replica serves: it was started again 2 times: vllm: serve: the server ended: exit status 3; its log "+k.Log()+" ends: ")
	require.ErrorContains(t, err, "the device is gone")
	require.NotContains(t, err.Error(), "\n")
	require.ErrorContains(t, e.Update(t.Context(), fakeWeights(t, 6, 8)), "it was started again 2 times")
	require.NoError(t, e.Close())
	require.NoError(t, k.Close())
	require.Len(t, notes, 3, strings.Join(notes, "\n"))
}

// A server that ends while its device belongs to the trainer is not started before the device is free.
func TestKeptServerIsHeld(t *testing.T) {
	var notes []string
	k := keepFake(t, &notes, nil)
	k.Hold(true)
	k.Hold(true)
	k.kill(t)
	time.Sleep(100 * time.Millisecond)
	require.Zero(t, k.Restarts())
	k.Hold(false)
	within(t, "it is started", func() bool { return k.Restarts() == 1 })
	k.Hold(true)
	k.kill(t)
	require.NoError(t, k.Close(), "which does not wait")
}

// A server that ended since the last look at it is waited for before it sleeps.
func TestKeptServerEndsBeforeItSleeps(t *testing.T) {
	var notes []string
	k := keepFake(t, &notes, nil)
	e, err := New(t.Context(), Options{URLs: []string{k.URL()}, APIKey: k.APIKey(), Gone: k.Gone, HealthEvery: time.Second, Patience: 20 * time.Second})
	require.NoError(t, err)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 5, 7)))
	k.kill(t)
	<-k.current().ended
	require.NoError(t, e.Sleep(t.Context()))
	require.Equal(t, "asleep", e.states())
	require.NoError(t, e.Close())
	require.NoError(t, k.Close())
}

// A server that does not come up says why: how it ended, also where that is well, and what is missing.
func TestKeepFails(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(fakeServer, folder)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "refuse"), nil, 0o644))
	_, err := Keep(t.Context(), ServeOptions{Command: os.Args[0], Model: "m", Folder: folder}, nil)
	require.ErrorContains(t, err, "vllm: serve: the server ended: exit status 3")
	_, err = Keep(t.Context(), ServeOptions{Command: "true", Model: "m", Folder: folder}, nil)
	require.ErrorContains(t, err, "vllm: serve: the server ended: exit status 0; its log ")
	_, err = Keep(t.Context(), ServeOptions{Command: filepath.Join(folder, "none"), Model: "m", Folder: folder}, nil)
	require.ErrorContains(t, err, "install it with scripts/vllm_install.sh")
	_, err = Keep(t.Context(), ServeOptions{}, nil)
	require.ErrorContains(t, err, "a folder for the log is needed")
}
