package vllm

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
)

func writeNothing(io.Writer) error { return nil }

// fakeGroup is a process group in memory; the fake server takes from it what vLLM's worker would.
type fakeGroup struct {
	backend string
	world   int
	joined  chan struct{} // closed when the server entered
	chunks  chan []byte
	closed  bool
	refuse  error
	broken  func() error // what Send fails with; nil: it does not
}

func (g *fakeGroup) Meet(_ context.Context, backend, _ string, world int) (Meeting, error) {
	if g.refuse != nil {
		return Meeting{}, g.refuse
	}
	g.backend, g.world, g.joined, g.chunks, g.closed = backend, world, make(chan struct{}), make(chan []byte), false
	return Meeting{Address: "127.0.0.1", Port: 4321, UniqueID: make([]byte, ncclIDBytes), Join: func(ctx context.Context) (Group, error) {
		select {
		case <-g.joined:
			return g, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}, nil
}

func (g *fakeGroup) Send(ctx context.Context, chunk []byte) error {
	if g.broken != nil {
		if err := g.broken(); err != nil {
			return err
		}
	}
	select {
	case g.chunks <- slices.Clone(chunk):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *fakeGroup) Close() error {
	g.closed = true
	return nil
}

// serves answers the routes of a transfer as a worker of that group. bodies are the requests that came.
func (g *fakeGroup) serves(t *testing.T, f *fake, bodies map[string]string) {
	f.control = func(w http.ResponseWriter, q *http.Request) bool {
		switch q.URL.Path {
		case "/get_world_size":
			answer(w, map[string]any{"world_size": 1})
			return true
		case "/init_weight_transfer_engine":
			close(g.joined)
		case "/update_weights":
		default:
			return false
		}
		data, err := io.ReadAll(q.Body)
		require.NoError(t, err)
		f.set(func() { f.paths = append(f.paths, q.URL.Path) })
		bodies[q.URL.Path] = string(data)
		if q.URL.Path != "/update_weights" {
			return true
		}
		var in struct {
			Update packedUpdate `json:"update_info"`
		}
		require.NoError(t, json.Unmarshal(data, &in))
		var chunk []byte
		select {
		case chunk = <-g.chunks:
		case <-q.Context().Done():
			return true
		}
		values, err := modelfile.Tensor{TensorInfo: modelfile.TensorInfo{DType: modelfile.F32, Shape: in.Update.Shapes[0]}, Data: chunk}.Float32()
		require.NoError(t, err)
		f.set(func() { f.weights = float64(values[0]) })
		return true
	}
}

// An update over a process group: who joins when, and the bodies as vLLM's data classes have them.
func TestBroadcastOrder(t *testing.T) {
	for way, init := range map[Way]string{
		WayGloo: `{"init_info": {"master_address": "127.0.0.1", "master_port": 4321, "rank_offset": 1, "world_size": 2, "packed_buffer_size_bytes": 268435456, "timeout": 60}}`,
		WayNCCL: `{"init_info": {"rank_offset": 1, "world_size": 2, "nccl_unique_id_b64": "` + strings.Repeat("A", 171) + `=", "packed": true, "packed_buffer_size_bytes": 268435456, "packed_num_buffers": 2}}`,
	} {
		t.Run(string(way), func(t *testing.T) {
			f, g := newFake(t), &fakeGroup{}
			e := connect(t, func(o *Options) { o.Way, o.Collectives = way, g }, f)
			bodies := map[string]string{}
			g.serves(t, f, bodies)
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 5, 7)))
			require.Equal(t, []string{
				"/pause", "/update_weight_version", "/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update",
				"/shutdown_weight_transfer_engine", "/update_weight_version", "/reset_prefix_cache", "/resume",
			}, f.calls())
			require.JSONEq(t, init, bodies["/init_weight_transfer_engine"])
			require.JSONEq(t, `{"update_info": {"names": ["w"], "dtype_names": ["float32"], "shapes": [[1]]}}`, bodies["/update_weights"])
			require.Equal(t, way.backend(), g.backend)
			require.Equal(t, 2, g.world)
			require.True(t, g.closed)
			c, err := e.Generate(t.Context(), request(6, 1, 2, 3))
			require.NoError(t, err)
			require.Equal(t, wantTokens(5, request(6, 1, 2, 3)), c.TokenIDs)
		})
	}
}

// packedGroup is a process group that sends from a device, as NCCL's: bytes of the host are no buffer of it.
type packedGroup struct {
	Group
	sent [][]byte
}

func (g *packedGroup) Send(_ context.Context, chunk []byte) error {
	g.sent = append(g.sent, slices.Clone(chunk))
	return nil
}

func (g *packedGroup) SendPacked(_ context.Context, chunk engines.Packed) error {
	p, ok := chunk.(part)
	if !ok {
		return fmt.Errorf("%T is no buffer of the device", chunk)
	}
	g.sent = append(g.sent, []byte(fmt.Sprintf("%d from the device", p.n)))
	return nil
}

// A group that sends from a device gets the device's tensors from where they lie, and a folder's as bytes.
func TestSendPacked(t *testing.T) {
	g, buffer := &packedGroup{}, []byte(nil)
	require.NoError(t, sendPacked(t.Context(), g, part{newMemory(5, "w"), 4}, &buffer))
	require.NoError(t, sendPacked(t.Context(), g, hostBytes("from a file"), &buffer))
	require.Equal(t, [][]byte{[]byte("4 from the device"), []byte("from a file")}, g.sent)
}

// When one half fails the other does not wait for it: the update ends with the reason.
func TestBroadcastFails(t *testing.T) {
	at := func(path string) func(f *fake, g *fakeGroup) {
		return func(f *fake, g *fakeGroup) {
			serve := f.control
			f.control = func(w http.ResponseWriter, q *http.Request) bool {
				if q.URL.Path == path {
					http.Error(w, "out of memory", http.StatusInternalServerError)
					return true
				}
				return serve(w, q)
			}
		}
	}
	for name, c := range map[string]struct {
		spoil func(f *fake, g *fakeGroup)
		want  string
	}{
		"the server does not join": {at("/init_weight_transfer_engine"), "load: /init_weight_transfer_engine: 500: out of memory"},
		"the server does not take": {at("/update_weights"), "load: /update_weights: 500: out of memory"},
		"no group can be made":     {func(_ *fake, g *fakeGroup) { g.refuse = errors.New("no CUDA device") }, "load: no CUDA device"},
		"workers are not counted":  {at("/get_world_size"), "load: /get_world_size: 500: out of memory"},
		"the trainer cannot send":  {func(_ *fake, g *fakeGroup) { g.broken = func() error { return errors.New("no CUDA device") } }, "load: chunk 0 (w to w): no CUDA device"},
	} {
		t.Run(name, func(t *testing.T) {
			f, g := newFake(t), &fakeGroup{}
			e := connect(t, func(o *Options) { o.Way, o.Collectives = WayGloo, g }, f)
			g.serves(t, f, map[string]string{})
			f.set(func() { c.spoil(f, g) })
			start := time.Now()
			err := e.Update(t.Context(), fakeWeights(t, 5, 7))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, time.Since(start), 5*time.Second)
			require.Equal(t, "behind", e.states())
		})
	}
}

// A server that ends while weights are broadcast to it is waited for, as with every way: the trainer's end sees the broken group before the server's
// reply tells more. Of some vLLMs the engine dies, and the API server says so before it ends too.
func TestAServerThatEndsWithinABroadcast(t *testing.T) {
	for name, last := range map[string]func(w http.ResponseWriter){
		"killed":               abort,
		"its engine is killed": func(w http.ResponseWriter) { http.Error(w, "EngineDeadError", http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			f, g := newFake(t), &fakeGroup{}
			e := connect(t, func(o *Options) { o.Way, o.Collectives = WayGloo, g }, f)
			g.serves(t, f, map[string]string{})
			gone := make(chan struct{}) // of the worker
			server := f.diesIn("/update_weights", func(m *mortal, w http.ResponseWriter, _ *http.Request) {
				<-gone
				time.Sleep(50 * time.Millisecond) // until the server knows
				m.dead.Store(true)
				time.AfterFunc(200*time.Millisecond, m.revive)
				last(w)
			}, last)
			g.broken = func() error {
				if server.back.Load() {
					return nil
				}
				close(gone)
				return errors.New("gloo: broadcast: rank 1 is gone: Connection reset by peer")
			}
			require.NoError(t, e.Update(t.Context(), fakeWeights(t, 5, 7)))
			require.Equal(t, "serving", e.states())
		})
	}
}

func TestWithoutCollectives(t *testing.T) {
	f := newFake(t)
	_, err := New(t.Context(), Options{URLs: []string{f.URL}, Way: WayNCCL})
	require.EqualError(t, err, "vllm: weights over nccl need CUDA: this program has no NCCL process groups; use disk or transfer")
	_, err = New(t.Context(), Options{URLs: []string{f.URL}, Way: WayGloo})
	require.EqualError(t, err, "vllm: weights over gloo need process groups, which this program has not; use disk or transfer")
	_, err = Meeting{UniqueID: []byte{1}}.initInfo("nccl", 2, 1)
	require.EqualError(t, err, "the unique id has 1 bytes, NCCL's have 128")
}

// pythonGroup is rank 0 of a Gloo group in a process of PyTorch's.
type pythonGroup struct {
	t        *testing.T
	command  *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
	cutShort bool // half of the last chunk is sent
	sent     int
}

func (g *pythonGroup) Meet(_ context.Context, backend, _ string, world int) (Meeting, error) {
	require.Equal(g.t, "gloo", backend)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Meeting{}, err
	}
	m := Meeting{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
	if err := l.Close(); err != nil {
		return m, err
	}
	m.Join = func(ctx context.Context) (Group, error) {
		python := filepath.Join(filepath.Dir(os.Getenv("AGENTFLY_VLLM")), "python")
		g.command = exec.Command(python, "-W", "ignore", "testdata/gloo_trainer.py", fmt.Sprint(m.Port), fmt.Sprint(world), "20") // s; Close does not wait for it
		g.command.Stderr = os.Stderr
		var err error
		if g.in, err = g.command.StdinPipe(); err != nil {
			return nil, err
		}
		out, err := g.command.StdoutPipe()
		if err != nil {
			return nil, err
		}
		g.out = bufio.NewReader(out)
		if err := g.command.Start(); err != nil {
			return nil, err
		}
		return g, g.expect("joined\n")
	}
	return m, nil
}

func (g *pythonGroup) expect(want string) error {
	got, err := g.out.ReadString('\n')
	if err == nil && got != want {
		err = fmt.Errorf("the trainer says %q", got)
	}
	return err
}

func (g *pythonGroup) Send(ctx context.Context, chunk []byte) error {
	defer context.AfterFunc(ctx, func() { _ = g.command.Process.Kill() })()
	g.sent++
	if g.cutShort {
		chunk = chunk[:len(chunk)/2]
	}
	if _, err := g.in.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(chunk))), chunk...)); err != nil {
		return err
	}
	return g.expect("sent\n")
}

func (g *pythonGroup) Close() error {
	if g.cutShort { // nobody takes what it sends
		_ = g.command.Process.Kill()
		_ = g.command.Wait()
		return nil
	}
	return errors.Join(g.in.Close(), g.command.Wait())
}

// The weights of a real vLLM over a real Gloo group, in several chunks; a chunk that was cut short is refused.
func TestRealGloo(t *testing.T) {
	g := &pythonGroup{t: t}
	e := realEngine(t, func(o *Options) { o.Way, o.Collectives, o.ChunkBytes = WayGloo, g, 100_000 })
	q := request(16, 40, 41, 42, 43)
	require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 1)))
	require.Greater(t, g.sent, 5)
	a, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.NoError(t, e.Update(t.Context(), realWeights(t, "b", 2)))
	b, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.NotEqual(t, a.TokenIDs, b.TokenIDs)
	require.Equal(t, int32(2), b.Versions[0])
	g.cutShort = true
	err = e.Update(t.Context(), realWeights(t, "a", 3))
	require.ErrorContains(t, err, "/update_weights: 500: ")
	t.Log(err)
	g.cutShort = false
	require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 4)))
	again, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, a.TokenIDs, again.TokenIDs)
	require.Equal(t, a.Logprobs, again.Logprobs, "the same bits as before")
}

// Sleep and wake-up of a real vLLM. On a CPU it frees no memory, but its routes and its scheduler do what they do on a GPU.
func TestRealSleep(t *testing.T) {
	for _, level := range []int{1, 2} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			e := realEngine(t, func(o *Options) { o.Sleep = level })
			require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 1)))
			q := request(300, 40, 41, 42, 43)
			var all sync.WaitGroup
			var done time.Time
			all.Go(func() {
				c, err := e.Generate(t.Context(), q)
				require.NoError(t, err)
				require.Len(t, c.TokenIDs, 300)
				require.Equal(t, []int32{1, 2}, []int32{c.Versions[0], c.Versions[299]}, "it slept in between")
				done = time.Now()
			})
			time.Sleep(150 * time.Millisecond)
			require.NoError(t, e.Sleep(t.Context()))
			require.Equal(t, "asleep", e.states())
			sleeping, err := e.fleet.replicas[0].client.isSleeping(t.Context())
			require.NoError(t, err)
			require.True(t, sleeping)
			version, err := e.fleet.replicas[0].client.weightVersion(t.Context())
			require.NoError(t, err)
			require.Equal(t, map[int]string{1: e.options.versionName(1), 2: e.options.unprovenName()}[level], version)
			time.Sleep(100 * time.Millisecond)
			woken := time.Now()
			require.NoError(t, e.Update(t.Context(), realWeights(t, "b", 2)))
			all.Wait()
			require.True(t, done.After(woken))
			require.Equal(t, "serving", e.states())
		})
	}
}
