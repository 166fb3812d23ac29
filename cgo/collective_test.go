//go:build torch

package cgo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// The scenarios that a rank of a test can play, each in a process of its own. What it prints the test compares.
var scenarios = map[string]func(g *Group) error{
	"collectives": playCollectives, "shards": playShards, "dies": playDies, "stops": playStops, "fails": playFails,
	"missing": func(*Group) error { return nil }, "patient": playPatient, "pipes": playPipes, "overlap": playOverlap,
	"late sum": playLateSum, "twice": playTwice, "release": playRelease, "both": playBoth, "pauses": playPauses, "pauses nccl": playPausesNCCL,
	"context":         func(g *Group) error { return playNeighbours(g, Neighbours{Context: g}) },
	"tensor":          func(g *Group) error { return playNeighbours(g, Neighbours{Tensor: g}) },
	"context traffic": playContextTraffic, "tensor traffic": playTensorTraffic,
	"context dies":   func(g *Group) error { return playDying(g, Neighbours{Context: g}) },
	"tensor dies":    func(g *Group) error { return playDying(g, Neighbours{Tensor: g}) },
	"context memory": func(g *Group) error { return growth(Neighbours{Context: g}) },
	"tensor memory":  func(g *Group) error { return growth(Neighbours{Tensor: g}) },
}

// TestRank is not a test of its own: runRanks starts the test binary with it.
func TestRank(t *testing.T) {
	name := os.Getenv("AGENTFLY_TEST_RANK")
	if name == "" {
		t.Skip("a helper process of the tests of ranks")
	}
	SetThreads(1)
	c, ok, err := GroupFromEnv()
	require.NoError(t, err)
	require.True(t, ok)
	c.Timeout = 10 * time.Second // which bounds how long the others may take to start, too
	if d, err := time.ParseDuration(os.Getenv("AGENTFLY_TEST_TIMEOUT")); err == nil {
		c.Timeout = d
	}
	c.Sharding = ShardingOf(os.Getenv("AGENTFLY_TEST_SHARDING"))
	c.First, _ = strconv.Atoi(os.Getenv("AGENTFLY_TEST_FIRST"))
	c.Stride, _ = strconv.Atoi(os.Getenv("AGENTFLY_TEST_STRIDE"))
	g, err := NewGroup(c)
	if err == nil {
		defer g.Close()
		err = scenarios[name](g)
	}
	if err != nil {
		fmt.Printf("error: %v\nis ErrRank: %v\n", err, errors.Is(err, ErrRank))
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

type rankProcess struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// startRanks starts the ranks of a scenario but those that are absent.
func startRanks(t *testing.T, scenario string, world int, absent ...int) []*rankProcess {
	t.Helper()
	return startRanksWith(t, nil, scenario, world, absent...)
}

// startRanksWith is startRanks with more variables of the environment, for a test beside which others run.
func startRanksWith(t *testing.T, variables []string, scenario string, world int, absent ...int) []*rankProcess {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	ranks := make([]*rankProcess, world)
	for r := range ranks {
		p := &rankProcess{cmd: exec.Command(os.Args[0], "-test.run=^TestRank$", "-test.v")}
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
		p.cmd.Env = append(append(os.Environ(), variables...), "AGENTFLY_TEST_RANK="+scenario, "RANK="+strconv.Itoa(r), "WORLD_SIZE="+strconv.Itoa(world),
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "OMP_NUM_THREADS=1")
		ranks[r] = p
		gone := false
		for _, a := range absent {
			gone = gone || a == r
		}
		if !gone {
			require.NoError(t, p.cmd.Start())
			t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
		}
	}
	return ranks
}

// wait returns what the rank printed, and how it ended.
func (p *rankProcess) wait(t *testing.T) string {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(4 * time.Minute): // a loaded machine hands over slowly
		_ = p.cmd.Process.Kill()
		<-done
		t.Fatalf("a rank hung: %s", p.out.String())
	}
	return p.out.String() + p.cmd.ProcessState.String()
}

// errorLine is the error that a rank ended with.
func errorLine(out string) string {
	for line := range strings.Lines(out) {
		if text, ok := strings.CutPrefix(line, "error: "); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

func playCollectives(g *Group) error {
	sum := []float32{1, 2, float32(g.Rank())}
	if err := g.AllReduce(sum); err != nil {
		return err
	}
	fmt.Println("sum", sum)
	text, err := g.Broadcast(1, []byte("from "+strconv.Itoa(g.Rank())))
	if err != nil {
		return err
	}
	empty, err := g.Broadcast(0, nil)
	if err != nil {
		return err
	}
	fmt.Println("broadcast", string(text), len(empty))
	all, err := g.Gather(bytes.Repeat([]byte{'a' + byte(g.Rank())}, g.Rank()))
	if err != nil {
		return err
	}
	fmt.Printf("gather %q\n", all)
	values := make([]float32, 32*g.World()+17) // chunks of 32, a tail of 17
	for i := range values {
		values[i] = float32(i * (g.Rank() + 1))
	}
	if err := g.ReduceScatter(values); err != nil {
		return err
	}
	own := g.Rank() * 32
	fmt.Println("shard", values[own], values[own+31])
	for i := range values {
		if i < own || i >= own+32 && g.Rank() != g.World()-1 {
			values[i] = -1
		}
	}
	if err := g.AllGather(values); err != nil {
		return err
	}
	for i, v := range values {
		if want := float32(i * g.World() * (g.World() + 1) / 2); v != want {
			return fmt.Errorf("value %d is %v after the all-gather, expected %v", i, v, want)
		}
	}
	fmt.Println("gathered")
	few := []float32{1, 2, 3} // fewer than a chunk each: all of it is the last rank's
	if err := g.ReduceScatter(few); err != nil {
		return err
	}
	if err := g.AllGather(few); err != nil {
		return err
	}
	fmt.Println("few", few)
	return g.Barrier()
}

func TestCollectives(t *testing.T) {
	for _, world := range []int{1, 2, 3} {
		for r, p := range startRanks(t, "collectives", world) {
			if world == 1 {
				require.Contains(t, p.wait(t), "root is no rank") // rank 1 does not exist
				continue
			}
			out := p.wait(t)
			require.Contains(t, out, fmt.Sprintf("sum [%d %d %d]\n", world, 2*world, world*(world-1)/2))
			require.Contains(t, out, "broadcast from 1 0\n")
			require.Contains(t, out, map[int]string{2: `gather ["" "b"]`, 3: `gather ["" "b" "cc"]`}[world])
			factor := world * (world + 1) / 2
			require.Contains(t, out, fmt.Sprintf("shard %d %d\n", 32*r*factor, (32*r+31)*factor))
			require.Contains(t, out, "gathered\n")
			require.Contains(t, out, fmt.Sprintf("few [%d %d %d]\n", world, 2*world, 3*world))
			require.Empty(t, errorLine(out))
		}
	}
}

// playShards steps a model with different gradients on each rank and prints what must agree.
func playShards(g *Group) error {
	m, err := NewModel(ModelConfig{VocabSize: 11, HiddenSize: 8, IntermediateSize: 12, NumLayers: 3, NumHeads: 2, NumKVHeads: 1, HeadDim: 4, RMSNormEps: 1e-5, InvFreq: []float32{1, 0.1}}, "cpu")
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.AddValueHead(); err != nil {
		return err
	}
	half := os.Getenv("AGENTFLY_TEST_DTYPE") == "bfloat16"
	if half {
		if err := m.SetDType(BF16); err != nil {
			return err
		}
	}
	if err := m.Init(uint64(g.Rank()+1), 0.3); err != nil { // different: rank 0's count
		return err
	}
	if err := g.BroadcastModel(m); err != nil {
		return err
	}
	o, err := NewOptimizer(m, AdamWConfig{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}, g)
	if err != nil {
		return err
	}
	defer o.Close()
	for step := range 3 {
		own := share(g, step)
		for i, ids := range own {
			if i == len(own)-1 {
				if err := o.ExpectLast(); err != nil {
					return err
				}
			}
			if err := accumulate(m, ids); err != nil {
				return err
			}
		}
		if err := o.Send(); err != nil {
			return err
		}
		norm, err := o.Step(0.01, 0.5)
		if err != nil {
			return err
		}
		fmt.Printf("norm %d %.9e\n", step, norm)
	}
	if err := o.Gather(); err != nil {
		return err
	}
	for _, p := range m.Trained() {
		values, err := m.Parameter(p.Name)
		switch {
		case half && g.sharding == FSDP && g.Rank() > 0:
			if err == nil || !strings.Contains(err.Error(), "the parameters are spread over the ranks; gather them first") {
				return fmt.Errorf("a rank that has no parameters gives some: %w", err)
			}
		case err != nil:
			return err
		default:
			fmt.Printf("parameter %s %s\n", p.Name, encode(values))
		}
		for _, which := range []Moment{ExpAvg, ExpAvgSq} {
			if values, err = o.State(p.Name, which); err != nil {
				return err
			}
			fmt.Printf("moment%d %s %s\n", which, p.Name, encode(values))
			if err := o.SetState(p.Name, which, values); err != nil {
				return err
			}
			again, err := o.State(p.Name, which)
			if err != nil {
				return err
			}
			if encode(again) != encode(values) {
				return errors.New("SetState does not give back what State gave")
			}
		}
	}
	return nil
}

// share is the sequences of a rank; over all ranks they are always the same. In the second step rank 0 has them all.
func share(g *Group, step int) [][]int32 {
	all := [][]int32{{1, 2, 3, 4, 5}, {6, 7, 8}, {9, 10, 1, 3}, {2, 2, 4, 4, 6, 6}, {5, 3, 1}}
	var own [][]int32
	for i, ids := range all {
		if owner := i % g.World(); owner == g.Rank() && step != 1 || g.Rank() == 0 && step == 1 {
			own = append(own, ids)
		}
	}
	return own
}

func accumulate(m *Model, ids []int32) error {
	out, err := m.Forward(plain(ids, 1), ForwardOptions{Grad: true, Values: true})
	if err != nil {
		return err
	}
	defer out.Close()
	weight := make([]float32, len(ids)-1)
	for i := range weight {
		weight[i] = -1
	}
	w, err := FromFloats(m, weight)
	if err != nil {
		return err
	}
	defer CloseTensor(w)
	loss, err := MaskedSum(out.Logprobs, w)
	if err != nil {
		return err
	}
	defer CloseTensor(loss)
	value, err := MaskedSum(out.Values, w)
	if err != nil {
		return err
	}
	defer CloseTensor(value)
	sum := gotorch.Add(loss, value, 1)
	defer CloseTensor(sum)
	return Backward(sum)
}

func encode(values []float32) string {
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, "%08x", math.Float32bits(v))
	}
	return b.String()
}

func decodeValues(t *testing.T, text string) []float64 {
	t.Helper()
	var out []float64
	for i := 0; i+8 <= len(text); i += 8 {
		u, err := strconv.ParseUint(text[i:i+8], 16, 32)
		require.NoError(t, err)
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(u))
		out = append(out, float64(math.Float32frombits(uint32(u))))
	}
	return out
}

// records are the lines of a shards process, by their first words.
func records(out string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) == 3 && (words[0] == "norm" || words[0] == "parameter" || strings.HasPrefix(words[0], "moment")) {
			m[words[0]+" "+words[1]] = words[2]
		}
	}
	return m
}

const shardRecords = 3 + 3*(3+3*9+2) // norms; parameters with two moments each

// Steps of two and of three processes are those of one within float noise, and the ranks end with the same bits.
func TestShardedSteps(t *testing.T) {
	one := records(startRanks(t, "shards", 1)[0].wait(t))
	require.Len(t, one, shardRecords)
	for _, world := range []int{2, 3} {
		var first map[string]string
		for r, p := range startRanks(t, "shards", world) {
			out := p.wait(t)
			require.Empty(t, errorLine(out))
			got := records(out)
			if r == 0 {
				first = got
			}
			require.Equal(t, first, got, "rank %d", r)
			require.Len(t, got, len(one))
			for name, text := range one {
				if strings.HasPrefix(name, "norm") {
					a, _ := strconv.ParseFloat(text, 64)
					b, _ := strconv.ParseFloat(got[name], 64)
					require.InEpsilon(t, a, b, 1e-6, name)
					continue
				}
				a, b := decodeValues(t, text), decodeValues(t, got[name])
				require.Len(t, b, len(a))
				square, difference := 0.0, 0.0
				for i := range a {
					square += a[i] * a[i]
					difference += (a[i] - b[i]) * (a[i] - b[i])
				}
				// Three steps of Adam over three layers: what is small is normalised, and its noise with it.
				require.LessOrEqual(t, math.Sqrt(difference), 5e-6*math.Sqrt(square), name)
			}
		}
	}
}

// FSDP gives ZeRO-1's bits, in both types: norms, parameters and moments, also of a rank that has nothing to compute.
func TestShardedStepsOverlap(t *testing.T) {
	for _, dtype := range []string{"float32", "bfloat16"} {
		t.Setenv("AGENTFLY_TEST_DTYPE", dtype)
		for _, world := range []int{2, 3} {
			t.Setenv("AGENTFLY_TEST_SHARDING", "zero1")
			want := records(startRanks(t, "shards", world)[0].wait(t))
			require.Len(t, want, shardRecords)
			t.Setenv("AGENTFLY_TEST_SHARDING", "fsdp")
			for r, p := range startRanks(t, "shards", world) {
				out := p.wait(t)
				require.Empty(t, errorLine(out))
				got := records(out)
				if dtype == "float32" || r == 0 {
					require.Equal(t, want, got, "rank %d of %d, %s", r, world, dtype)
				} else {
					require.Len(t, got, shardRecords-(shardRecords-3)/3, "no parameters")
				}
			}
		}
	}
}

func playDies(g *Group) error {
	if err := g.Barrier(); err != nil {
		return err
	}
	if g.Rank() == g.World()-1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return g.Barrier()
}

// playPipes sends each of its threads what a write to a peer that is gone sends.
func playPipes(g *Group) error {
	if err := g.Barrier(); err != nil {
		return err
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if err := syscall.Tgkill(os.Getpid(), id, syscall.SIGPIPE); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	if err := g.Barrier(); err != nil {
		return err
	}
	fmt.Println("survived")
	return nil
}

func playStops(g *Group) error {
	if err := g.Barrier(); err != nil {
		return err
	}
	if strconv.Itoa(g.Rank()) == os.Getenv("AGENTFLY_TEST_VICTIM") {
		return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	return g.AllReduce(make([]float32, 1000))
}

func playFails(g *Group) error {
	if g.Rank() == 1 {
		g.Fail("trajectory 7: the loss is NaN")
		return nil
	}
	return g.Barrier()
}

// playPatient: rank 0 comes after more than the timeout; rank 1 waits, rank 2 waits without patience in the end.
func playPatient(g *Group) error {
	if g.Rank() == 0 {
		time.Sleep(12 * time.Second)
		if _, err := g.Broadcast(0, []byte("at last")); err != nil {
			return err
		}
		time.Sleep(12 * time.Second)
		return g.Barrier()
	}
	data, err := g.Await(0)
	if err != nil {
		return err
	}
	fmt.Println("got", string(data))
	return g.Barrier()
}

// playPauses: all ranks are stopped for longer than the timeout while they wait for one of them to join, for rank 0 in patience, and for
// the last at a barrier.
func playPauses(g *Group) error {
	pids, err := g.Gather([]byte(strconv.Itoa(os.Getpid())))
	if err != nil {
		return err
	}
	pause := func() error { // rank 0, whose process has the store, goes on last
		if g.Rank() != 0 {
			return nil
		}
		script := "sleep 1; kill -STOP $0 $@; sleep 7; kill -CONT $@; sleep 1; kill -CONT $0"
		return exec.Command("sh", append([]string{"-c", script}, strings.Fields(string(bytes.Join(pids, []byte(" "))))...)...).Start()
	}
	c, _, err := GroupFromEnv()
	if err != nil {
		return err
	}
	c.Prefix, c.Serve, c.Timeout = "pauses", false, 5*time.Second
	if err := pause(); err != nil {
		return err
	}
	if g.Rank() == 2 {
		keepWaiting()
	}
	paused, err := NewGroup(c)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	defer paused.Close()
	if err := pause(); err != nil {
		return err
	}
	if g.Rank() == 0 {
		keepWaiting()
		_, err = paused.Broadcast(0, []byte("go on"))
	} else {
		_, err = paused.Await(0)
	}
	if err != nil {
		return err
	}
	if err := pause(); err != nil {
		return err
	}
	if g.Rank() == 2 {
		keepWaiting()
	}
	if err := paused.Barrier(); err != nil {
		return err
	}
	fmt.Println("went on")
	return nil
}

// keepWaiting takes two seconds in which this process runs: one that is stopped meanwhile goes on with what is left of them.
func keepWaiting() {
	for range 20 {
		time.Sleep(100 * time.Millisecond)
	}
}

func TestRankDies(t *testing.T) {
	ranks := startRanks(t, "dies", 3)
	start := time.Now()
	for _, p := range ranks[:2] {
		out := p.wait(t)
		require.Contains(t, errorLine(out), "rank 2", out)
		require.NotContains(t, errorLine(out), "rank 0 ", out)
		require.Contains(t, out, "is ErrRank: true")
	}
	require.Less(t, time.Since(start), time.Minute)
}

func TestRankSurvivesBrokenPipes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the threads of a process are listed by Linux alone")
	}
	for _, p := range startRanks(t, "pipes", 2) {
		require.Contains(t, p.wait(t), "survived")
	}
}

func TestRankStops(t *testing.T) {
	t.Parallel() // it waits for its time limit
	for _, victim := range []int{0, 1} {
		ranks := startRanksWith(t, []string{"AGENTFLY_TEST_VICTIM=" + strconv.Itoa(victim)}, "stops", 2)
		out := ranks[1-victim].wait(t)
		require.Contains(t, errorLine(out), "rank "+strconv.Itoa(victim), out)
		require.Contains(t, errorLine(out), "its process is stopped, dead or unreachable", out)
		require.Contains(t, out, "is ErrRank: true")
	}
}

// A run that is stopped as a whole, as by Ctrl-Z, goes on: no rank was late while none ran.
func TestRanksPause(t *testing.T) {
	t.Parallel() // it waits for its time limit
	for _, p := range startRanks(t, "pauses", 3) {
		require.Contains(t, p.wait(t), "went on")
	}
}

func TestRankFails(t *testing.T) {
	for r, p := range startRanks(t, "fails", 3) {
		out := p.wait(t)
		if r != 1 {
			require.Contains(t, errorLine(out), "rank 1 failed: trajectory 7: the loss is NaN", out)
		}
	}
}

func TestRankMissing(t *testing.T) {
	t.Parallel() // it waits for its time limit
	ranks := startRanks(t, "missing", 3, 1)
	for _, r := range []int{0, 2} {
		out := ranks[r].wait(t)
		require.Contains(t, errorLine(out), "rank 1 of 3 has not joined within 10 s", out)
	}
	ranks = startRanks(t, "missing", 2, 0)
	require.Contains(t, errorLine(ranks[1].wait(t)), "rank 0 has not served the store at 127.0.0.1:")
}

func TestPatience(t *testing.T) {
	t.Parallel() // it waits for its time limit
	for r, p := range startRanks(t, "patient", 2) {
		out := p.wait(t)
		if r == 1 {
			require.Contains(t, out, "got at last")
			require.Contains(t, errorLine(out), "rank 0 (alive, still at collective 3, broadcast from rank 0)", out)
		}
	}
}

func TestGroupFromEnv(t *testing.T) {
	for _, name := range []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"} {
		t.Setenv(name, "")
	}
	_, ok, err := GroupFromEnv()
	require.NoError(t, err)
	require.False(t, ok)
	t.Setenv("WORLD_SIZE", "4")
	_, _, err = GroupFromEnv()
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, `RANK is "", a number is needed`)
	t.Setenv("RANK", "3")
	c, ok, err := GroupFromEnv()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, GroupConfig{Rank: 3, World: 4, Address: "127.0.0.1", Port: 29500, Serve: true}, c)
	t.Setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
	t.Setenv("TORCHELASTIC_RESTART_COUNT", "1")
	t.Setenv("LOCAL_RANK", "2")
	c, _, err = GroupFromEnv()
	require.NoError(t, err)
	require.Equal(t, GroupConfig{Rank: 3, World: 4, LocalRank: 2, Address: "127.0.0.1", Port: 29500, Prefix: "attempt_1"}, c)
	t.Setenv("RANK", "4")
	_, _, err = GroupFromEnv()
	require.ErrorContains(t, err, "RANK is 4 and WORLD_SIZE 4")
}

func TestGroupInput(t *testing.T) {
	good := GroupConfig{World: 1, Address: "127.0.0.1", Port: freePort(t), Serve: true, Timeout: time.Second}
	for _, change := range []struct {
		want string
		make func(c *GroupConfig)
	}{
		{"world is 0", func(c *GroupConfig) { c.World = 0 }},
		{"rank is 1, allowed are 0 to 0", func(c *GroupConfig) { c.Rank = 1 }},
		{"the address of rank 0 is missing", func(c *GroupConfig) { c.Address = "" }},
		{"port is 0", func(c *GroupConfig) { c.Port = 0 }},
		{"timeout_ms must be above 0", func(c *GroupConfig) { c.Timeout = 0 }},
		{`device "tpu" is unknown`, func(c *GroupConfig) { c.Device = "tpu" }},
	} {
		c := good
		change.make(&c)
		_, err := NewGroup(c)
		require.ErrorContains(t, err, change.want)
		require.ErrorIs(t, err, ErrInput)
	}
	live := LiveHandles()
	g, err := NewGroup(good)
	require.NoError(t, err)
	require.ErrorContains(t, g.AllReduce(nil), "no values")
	require.NoError(t, g.Barrier())
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	require.ErrorIs(t, g.Barrier(), ErrClosed)
	require.Equal(t, live, LiveHandles())
}
