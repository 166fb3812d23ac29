//go:build torch

package cgo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scriptedNCCL is a library of NCCL, with the folder where its ranks meet and log.
func scriptedNCCL(t *testing.T) (library, folder string) {
	t.Helper()
	return compileScripted(t, "scripted_nccl.cc", "libnccl.so.2", "SCRIPTED_NCCL")
}

func calls(t *testing.T, folder, rank string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "calls."+rank))
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// scriptedPair is a group of two ranks in this process.
func scriptedPair(t *testing.T, library string, timeout time.Duration) (root, worker *NCCLGroup) {
	t.Helper()
	id, err := NCCLUniqueID(library)
	require.NoError(t, err)
	require.Len(t, id, 128)
	c := NCCLConfig{Library: library, ID: id, World: 2, Timeout: timeout}
	joined := make(chan error, 1)
	go func() {
		c := c
		c.Rank, c.Timeout = 1, 10*time.Second
		var err error
		worker, err = JoinNCCL(t.Context(), c)
		joined <- err
	}()
	root, err = JoinNCCL(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, <-joined)
	t.Cleanup(func() {
		require.NoError(t, root.Close())
		require.NoError(t, worker.Close())
	})
	return root, worker
}

func TestNCCLBroadcast(t *testing.T) {
	library, folder := scriptedNCCL(t)
	before := LiveHandles()
	l, err := NCCL(library)
	require.NoError(t, err)
	require.Equal(t, 22907, l.Version)
	require.Equal(t, library, l.Path)
	root, worker := scriptedPair(t, library, 10*time.Second)
	chunks := [][]byte{bytes.Repeat([]byte("abc"), 1000), {}, {7}, bytes.Repeat([]byte{0, 255}, 40_000)}
	taken := make(chan error, 1)
	var got [][]byte
	go func() {
		for _, c := range chunks {
			b := make([]byte, len(c))
			if err := worker.Broadcast(t.Context(), 0, b); err != nil {
				taken <- err
				return
			}
			got = append(got, b)
		}
		taken <- nil
	}()
	for _, c := range chunks {
		sent := bytes.Clone(c)
		require.NoError(t, root.Broadcast(t.Context(), 0, sent))
		require.Equal(t, c, sent)
	}
	require.NoError(t, <-taken)
	require.Equal(t, chunks, got)
	require.NoError(t, root.Close())
	require.NoError(t, root.Close(), "again")
	require.NoError(t, worker.Close())
	require.Equal(t, before, LiveHandles())
	require.ErrorIs(t, root.Broadcast(t.Context(), 0, []byte{1}), ErrClosed)
	require.Equal(t, []string{
		"unique id", "init rank 0 of 2 without blocking", "all-reduce 1 float32, sum",
		"broadcast 3000 uint8 from rank 0", "broadcast 0 uint8 from rank 0", "broadcast 1 uint8 from rank 0", "broadcast 80000 uint8 from rank 0",
		"abort",
	}, calls(t, folder, "0"))
	require.Equal(t, calls(t, folder, "0")[2:], calls(t, folder, "1")[1:], "the worker does the same")
}

// A worker that does not come, or does not take a chunk, ends the call and not the process.
func TestNCCLLate(t *testing.T) {
	library, folder := scriptedNCCL(t)
	t.Run("comes never", func(t *testing.T) {
		id, err := NCCLUniqueID(library)
		require.NoError(t, err)
		_, err = JoinNCCL(t.Context(), NCCLConfig{Library: library, ID: id, World: 3, Timeout: 50 * time.Millisecond})
		require.ErrorIs(t, err, ErrRank)
		require.EqualError(t, err, "cgo: nccl: the 3 ranks have not met within 0.05 s: a worker has not come, or cannot reach this machine")
		require.Equal(t, []string{"unique id", "init rank 0 of 3 without blocking", "abort"}, calls(t, folder, "0"))
	})
	t.Run("takes nothing", func(t *testing.T) {
		root, _ := scriptedPair(t, library, 2*time.Second)
		err := root.Broadcast(t.Context(), 0, make([]byte, 5))
		require.ErrorIs(t, err, ErrRank)
		require.EqualError(t, err, "cgo: nccl: a chunk of 5 bytes is not through after 2 s: a worker does not take it")
		require.EqualError(t, root.Broadcast(t.Context(), 0, make([]byte, 5)), err.Error(), "a broken group stays broken")
	})
	t.Run("given up", func(t *testing.T) {
		root, _ := scriptedPair(t, library, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		require.ErrorIs(t, root.Broadcast(ctx, 0, make([]byte, 5)), context.Canceled)
		require.ErrorContains(t, root.Broadcast(t.Context(), 0, make([]byte, 5)), "given up")
	})
}

// playPausesNCCL: this process is stopped for longer than the timeout while one of two ranks, both of it, waits for the other.
func playPausesNCCL(*Group) error {
	library := os.Getenv("AGENTFLY_TEST_NCCL")
	id, err := NCCLUniqueID(library)
	if err != nil {
		return err
	}
	taken := make(chan error, 1)
	go func() {
		worker, err := JoinNCCL(context.Background(), NCCLConfig{Library: library, ID: id, Rank: 1, World: 2, Timeout: time.Minute})
		if err == nil {
			defer worker.Close()
			keepWaiting()
			err = worker.Broadcast(context.Background(), 0, make([]byte, 3))
		}
		taken <- err
	}()
	root, err := JoinNCCL(context.Background(), NCCLConfig{Library: library, ID: id, World: 2, Timeout: 3 * time.Second})
	if err != nil {
		return err
	}
	defer root.Close()
	if err := exec.Command("sh", "-c", "sleep 1; kill -STOP $0; sleep 4; kill -CONT $0", strconv.Itoa(os.Getpid())).Start(); err != nil {
		return err
	}
	if err := root.Broadcast(context.Background(), 0, []byte{1, 2, 3}); err != nil {
		return err
	}
	fmt.Println("went on")
	return <-taken
}

// Time in which the trainer's own process is stopped is no lateness of a worker.
func TestNCCLPauses(t *testing.T) {
	library, _ := scriptedNCCL(t)
	for _, p := range startRanksWith(t, []string{"AGENTFLY_TEST_NCCL=" + library}, "pauses nccl", 1) {
		out := p.wait(t)
		require.Contains(t, out, "went on")
		require.Empty(t, errorLine(out))
	}
}

// What NCCL reports is the error; a call that never returns is ended by the abort, or left behind when even that fails.
func TestNCCLFaults(t *testing.T) {
	library, _ := scriptedNCCL(t)
	for fault, want := range map[string]string{
		"error 0":      "cgo: nccl: ncclCommInitRankConfig: unhandled system error: the script says so",
		"block 0":      "cgo: nccl: the 2 ranks have not met within 2 s: a worker has not come, or cannot reach this machine; NCCL does not let go of it: its thread is left behind",
		"error 2":      "cgo: nccl: ncclBroadcast: unhandled system error: the script says so",
		"late-error 2": "cgo: nccl: ncclBroadcast: remote process exited or there was a network error",
		"block 2":      "cgo: nccl: a chunk of 3 bytes is not through after 2 s: a worker does not take it",
		"deaf 2":       "cgo: nccl: a chunk of 3 bytes is not through after 2 s: a worker does not take it; NCCL does not let go of it: its thread is left behind",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("SCRIPTED_NCCL_FAULT", fault)
			id, err := NCCLUniqueID(library)
			require.NoError(t, err)
			c := NCCLConfig{Library: library, ID: id, World: 2, Timeout: 2 * time.Second}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { // the worker; its errors are the other test's matter
				defer close(done)
				c := c
				c.Rank, c.Timeout = 1, time.Minute
				worker, err := JoinNCCL(ctx, c)
				for err == nil {
					err = worker.Broadcast(ctx, 0, make([]byte, 3))
				}
				if worker != nil {
					_ = worker.Close()
				}
			}()
			root, err := JoinNCCL(t.Context(), c)
			for range 2 {
				if err == nil {
					err = root.Broadcast(t.Context(), 0, []byte{1, 2, 3})
				}
			}
			require.EqualError(t, err, want)
			cancel()
			<-done
			if root != nil {
				require.NoError(t, root.Close())
			}
		})
	}
}

func TestNCCLRefuses(t *testing.T) {
	library, _ := scriptedNCCL(t)
	id, err := NCCLUniqueID(library)
	require.NoError(t, err)
	for want, c := range map[string]NCCLConfig{
		"cgo: nccl: the id has 1 bytes, 128 are needed":                               {Library: library, ID: []byte{1}, World: 2, Timeout: 1},
		"cgo: nccl: rank 2 of 2; ranks count from 0":                                  {Library: library, ID: id, Rank: 2, World: 2, Timeout: time.Second},
		"cgo: nccl: timeout_ms must be above 0":                                       {Library: library, ID: id, World: 2},
		"cgo: nccl: NCCL moves the memory of CUDA devices, and the device is the CPU": {ID: id, World: 2, Timeout: time.Second},
		"there is no device 99":                                                       {Library: library, ID: id, World: 2, Device: "cuda:99", Timeout: time.Second},
		"cgo: nccl: NCCL cannot be loaded: /nowhere/libnccl.so.2: ":                   {Library: "/nowhere/libnccl.so.2", ID: id, World: 2, Timeout: time.Second},
	} {
		_, err := JoinNCCL(t.Context(), c)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err = NCCL("libm.so.6")
	require.ErrorContains(t, err, "has no ncclGetErrorString; NCCL 2.14 or newer is needed")
	if CUDADevices() == 0 {
		_, err = NCCL("")
		require.EqualError(t, err, "cgo: nccl: libtorch sees no CUDA device here")
	}
}

// The real library on a machine without a GPU: its symbols are there, and it fails with words.
func TestRealNCCL(t *testing.T) {
	library := os.Getenv("AGENTFLY_NCCL")
	if library == "" && CUDADevices() == 0 {
		t.Skip("no libnccl.so.2: AGENTFLY_NCCL names none; set it to $(python3 scripts/fetch.py nccl), a download of 200 MB")
	}
	l, err := NCCL(library)
	require.NoError(t, err)
	t.Log(l, l.Path)
	id, err := NCCLUniqueID(library)
	require.NoError(t, err)
	require.Len(t, id, NCCLIDBytes)
	require.NotEqual(t, make([]byte, NCCLIDBytes), id)
	if CUDADevices() > 0 {
		t.Skip("a CUDA device is there; TestNCCLOnCUDA goes on with it")
	}
	_, err = JoinNCCL(t.Context(), NCCLConfig{Library: library, ID: id, World: 2, Timeout: 20 * time.Second})
	require.ErrorContains(t, err, "cgo: nccl: ncclCommInitRankConfig: ")
	require.NotErrorIs(t, err, ErrRank, "it is NCCL that refuses")
	require.NotContains(t, err.Error(), "\n")
	t.Log(err)
}

// NCCL on the devices that are there: a rank on each of two, or one rank alone.
func TestNCCLOnCUDA(t *testing.T) {
	cuda(t)
	world := min(CUDADevices(), 2)
	l, err := NCCL("")
	require.NoError(t, err)
	id, err := NCCLUniqueID("")
	require.NoError(t, err)
	chunks := [][]byte{bytes.Repeat([]byte("abc"), 1000), {7}, bytes.Repeat([]byte{0, 255}, 4<<20)}
	play := func(rank int) error {
		g, err := JoinNCCL(t.Context(), NCCLConfig{ID: id, Rank: rank, World: world, Device: []string{"cuda:0", "cuda:1"}[rank], Timeout: time.Minute})
		if err != nil {
			return err
		}
		defer g.Close()
		for _, c := range chunks {
			b := make([]byte, len(c))
			if rank == 0 {
				copy(b, c)
			}
			if err := g.Broadcast(t.Context(), 0, b); err != nil {
				return err
			}
			require.True(t, bytes.Equal(c, b))
		}
		return nil
	}
	errs := make(chan error, world)
	for rank := range world {
		go func() { errs <- play(rank) }()
	}
	for range world {
		require.NoError(t, <-errs)
	}
	t.Logf("%v, %d rank(s)", l, world)
}
