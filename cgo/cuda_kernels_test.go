//go:build torch

package cgo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scripted has the CPU stand for a CUDA device until the test ends: kernels run thread by thread on it (testdata/cuda). It returns
// the file that launches are appended to, and skips where the library was built without its test libraries.
func scripted(t testing.TB, driver string) (launches string) {
	t.Helper()
	native := os.Getenv("AGENTFLY_NATIVE")
	if _, err := os.Stat(filepath.Join(native, "test", driver)); native == "" || err != nil {
		t.Skip("the scripted libcuda is not here: run scripts/torchgo test, which builds it")
	}
	folder := t.TempDir()
	image := filepath.Join(folder, "image")
	require.NoError(t, os.WriteFile(image, []byte{0x50, 0xed, 0x55, 0xba}, 0o600)) // as a fat binary begins
	t.Setenv("SCRIPTED_CUDA_LOG", filepath.Join(folder, "launches"))
	require.NoError(t, scriptCUDA(filepath.Join(native, "test", driver), image, filepath.Join(native, "test", "libstandins.so")))
	t.Cleanup(func() { require.NoError(t, unscriptCUDA()) })
	return filepath.Join(folder, "launches")
}

func launched(t *testing.T, log string) []string {
	t.Helper()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// operation is one of operate, and what its matrices begin with.
type operation struct {
	name     string
	heads    int
	number   float64
	kernels  []string // that it launches, without the type's suffix
	matrices []matrix
	exact    []int // matrices that are float32 whatever the type
}

func (o operation) run(t *testing.T, dtype DType, shift int) []matrix {
	t.Helper()
	return o.runOn(t, -1, dtype, shift)
}

func (o operation) runOn(t *testing.T, device int, dtype DType, shift int) []matrix {
	t.Helper()
	out := make([]matrix, len(o.matrices))
	for i, m := range o.matrices {
		out[i] = matrix{m.rows, m.columns, slices.Clone(m.data)}
	}
	require.NoError(t, operate(o.name, device, dtype, shift, o.heads, o.number, out...))
	return out
}

func randomMatrix(r *rand.Rand, rows, columns int) matrix {
	return matrix{rows, columns, normal(r, rows*columns)}
}

// rowOperations are the operations on rows of width numbers, heads of them a row in the norms.
func rowOperations(r *rand.Rand, rows, heads, width int) []operation {
	of := func(n int) matrix { return randomMatrix(r, rows, n) }
	rstd := matrix{rows, heads, make([]float32, rows*heads)}
	for i := range rstd.data {
		rstd.data[i] = 0.5 + r.Float32()
	}
	out := []operation{
		{"rms_norm", heads, 0, []string{"af_rms_norm"}, []matrix{of(heads * width), randomMatrix(r, 1, width), of(heads * width), of(heads), of(heads * width), rstd}, []int{3, 5}},
		{"rms_norm_backward", heads, 0, []string{"af_rms_norm_backward", "af_sum_parts"}, []matrix{of(heads * width), randomMatrix(r, 1, width), of(heads * width), of(heads * width), randomMatrix(r, 1, width), rstd}, []int{1, 5}},
		{"swiglu", 1, 0, []string{"af_swiglu"}, []matrix{of(width), of(2 * width)}, nil},
		{"swiglu_backward", 1, 0, []string{"af_swiglu_backward"}, []matrix{of(2 * width), of(width), of(2 * width), of(width)}, nil},
	}
	for _, direction := range []float64{1, -1} { // the last third of a row is no head's
		out = append(out, operation{"rope", heads, direction, []string{"af_rope"}, []matrix{of(3 * heads * width), of(width / 2), of(width / 2)}, []int{1, 2}})
	}
	return out
}

// headOperation has a row whose hidden state is NaN and whose gradients are 0.
func headOperation(r *rand.Rand, rows, vocab int, temperature float64) operation {
	const D = 16
	column := func(f func() float32) matrix {
		m := matrix{rows, 1, make([]float32, rows)}
		for i := range m.data {
			m.data[i] = f()
		}
		return m
	}
	gauss := func() float32 { return float32(r.NormFloat64()) }
	o := operation{"head", 1, temperature, []string{"af_head_forward", "af_head_backward"}, []matrix{
		randomMatrix(r, rows, D), randomMatrix(r, vocab, D), column(func() float32 { return float32(r.IntN(vocab)) }), column(gauss), column(gauss),
		column(gauss), column(gauss), column(gauss), randomMatrix(r, rows, D), randomMatrix(r, vocab, D),
	}, []int{2, 3, 4, 5, 6, 7, 8, 9}}
	for i := range D {
		o.matrices[0].data[i] = float32(math.NaN())
	}
	o.matrices[3].data[0], o.matrices[4].data[0] = 0, 0
	o.matrices[4].data[1] = 0 // and one without a gradient of entropy
	return o
}

// stepOperation is AdamW's third step over n numbers; in bfloat16 the parameters are rounded into a buffer of their own.
func stepOperation(r *rand.Rand, n int, gradientScale float64) operation {
	o := operation{"adamw", 3, gradientScale, []string{"af_adamw"}, []matrix{
		randomMatrix(r, 1, n), randomMatrix(r, 1, n), randomMatrix(r, 1, n), randomMatrix(r, 1, n), randomMatrix(r, 1, n),
	}, []int{0, 1, 2, 3}}
	for i, v := range o.matrices[3].data {
		o.matrices[3].data[i] = v * v
		if i%5 == 1 { // so little that epsilon is as large as the root
			o.matrices[1].data[i], o.matrices[2].data[i], o.matrices[3].data[i] = 3e-8, 1e-8, 1e-16
		}
	}
	return o
}

// agree holds what kernels gave against the expressions: float32 to bound of the largest number, bfloat16 to one step of its own
// in each element and in few of them.
func agree(t *testing.T, got, want []float32, half bool, bound float64) {
	t.Helper()
	largest, off := 0.0, 0
	for _, x := range want {
		if !math.IsNaN(float64(x)) {
			largest = max(largest, math.Abs(float64(x)))
		}
	}
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if math.IsNaN(w) {
			require.True(t, math.IsNaN(g), "number %d is %v, not NaN", i, g)
			continue
		}
		allowed := bound * max(1, largest)
		if half {
			allowed += math.Abs(w) / 128
		}
		if g != w {
			off++
		}
		require.LessOrEqual(t, math.Abs(g-w), allowed, "number %d is %v, not %v", i, g, w)
	}
	if half {
		require.LessOrEqual(t, off, 1+len(want)/50, "of %d numbers differ", len(want))
	}
}

// everyOperation has each of them in several sizes: rows of whole vectors and others.
func everyOperation() (operations []operation) {
	r := rand.New(rand.NewPCG(3, 9))
	for _, s := range [][3]int{{3, 1, 64}, {1, 1, 8}, {2, 3, 16}, {5, 2, 10}, {4, 1, 2}, {2, 1, 2200}, {1030, 1, 4}, {3, 5, 64}} {
		operations = append(operations, rowOperations(r, s[0], s[1], s[2])...)
	}
	for _, s := range []struct {
		rows, vocab int
		temperature float64
	}{{3, 8, 1}, {2, 31, 0.7}, {2, 12000, 1.3}, {3, 5003, 1}, {5, 40, 1}} {
		operations = append(operations, headOperation(r, s.rows, s.vocab, s.temperature))
	}
	for _, n := range []int{8, 4096, 5003, 7} {
		operations = append(operations, stepOperation(r, n, 1), stepOperation(r, n, 0.37))
	}
	for _, s := range pagedShapes {
		operations = append(operations, pagedOperation(r, s))
	}
	return operations
}

// Every kernel gives what the ATen expression beside it gives, in both types, for rows that are made of whole vectors and for rows
// that are not, at addresses that begin a vector and at others; and the same bits whatever the order of its threads.
func TestKernelsEqualExpressions(t *testing.T) {
	operations := everyOperation()
	seen := map[string]bool{}
	for _, o := range operations {
		for dtype, suffix := range map[DType]string{F32: "_fp32", BF16: "_bf16"} {
			for _, shift := range []int{0, 1} {
				if shift == 1 && o.matrices[0].rows > 1000 {
					continue
				}
				name := fmt.Sprintf("%s/%dx%d/%s/%d", o.name, o.matrices[0].rows, o.matrices[0].columns, suffix[1:], shift)
				want := o.run(t, dtype, shift)
				t.Run(name, func(t *testing.T) {
					log := scripted(t, "libcuda.so.1")
					got := o.run(t, dtype, shift)
					for i := range got {
						bound := 3e-6
						if o.name == "head" && i >= 8 && dtype == BF16 {
							bound = 4e-3 // the gradient of the logits is rounded before its products, by the kernel and by the expression
						}
						agree(t, got[i].data, want[i].data, dtype == BF16 && !slices.Contains(o.exact, i), bound)
					}
					for _, k := range o.kernels {
						if k != "af_head_forward" && k != "af_sum_parts" && k != "af_adamw" {
							k += suffix
						}
						require.True(t, slices.ContainsFunc(launched(t, log), func(l string) bool { return strings.HasPrefix(l, k+" ") }), k)
						seen[k] = true
					}
					for _, order := range []string{"descending", "17"} {
						t.Setenv("SCRIPTED_CUDA_ORDER", order)
						again := o.run(t, dtype, shift)
						for i := range got {
							require.Equal(t, bits(got[i].data), bits(again[i].data), "buffer %d, threads in order %s", i, order)
						}
					}
				})
			}
		}
	}
	if len(operations) > 0 && os.Getenv("AGENTFLY_NATIVE") != "" {
		require.Len(t, seen, 19, "kernels that ran")
	}
}

// The same on a device, whose exponentials and square roots are its own: kernels against expressions, and the same bits twice.
func TestKernelsOnCUDA(t *testing.T) {
	cuda(t)
	runtime.LockOSThread() // the trace is of one thread
	defer runtime.UnlockOSThread()
	require.NoError(t, startTrace("cuda"))
	for _, o := range everyOperation()[:8] {
		o.runOn(t, 0, BF16, 0)
	}
	seen, err := stopTrace(100)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(seen.Busiest, func(k kernelTime) bool { return strings.HasPrefix(k.Name, "af_rms_norm_bf16") }), "own kernels run: %v", seen.Busiest)
	for _, o := range everyOperation() {
		for _, dtype := range []DType{F32, BF16} {
			for _, shift := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s/%dx%d/%d/%d", o.name, o.matrices[0].rows, o.matrices[0].columns, dtype, shift), func(t *testing.T) {
					t.Setenv("AGENTFLY_CUDA_KERNELS", "0")
					want := o.runOn(t, 0, dtype, shift)
					t.Setenv("AGENTFLY_CUDA_KERNELS", "")
					got, again := o.runOn(t, 0, dtype, shift), o.runOn(t, 0, dtype, shift)
					for i := range got {
						bound := 1e-5
						if o.name == "head" && i >= 8 && dtype == BF16 {
							bound = 4e-3
						}
						agree(t, got[i].data, want[i].data, dtype == BF16 && !slices.Contains(o.exact, i), bound)
						require.Equal(t, bits(got[i].data), bits(again[i].data), "buffer %d", i)
					}
				})
			}
		}
	}
}

func bits(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}

// Without barriers the kernels that need them give other bits in another order of threads: the test above would see it.
func TestKernelsWithoutBarriers(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 9))
	norm := rowOperations(r, 2, 1, 640)
	for _, o := range []operation{norm[0], norm[1], headOperation(r, 2, 9000, 1), pagedOperation(r, pagedShape{16, 1, 2, 8, []int{70, 600}})} {
		for _, dtype := range []DType{F32, BF16} {
			t.Run(fmt.Sprint(o.name, dtype), func(t *testing.T) {
				scripted(t, "libcuda-without-barriers.so.1")
				differs := false
				first := o.run(t, dtype, 0)
				for _, order := range []string{"descending", "5"} {
					t.Setenv("SCRIPTED_CUDA_ORDER", order)
					for i, m := range o.run(t, dtype, 0) {
						differs = differs || !slices.Equal(bits(first[i].data), bits(m.data))
					}
				}
				require.True(t, differs)
			})
		}
	}
}

// A launch's grid covers rows on its first dimension and columns on its second.
func TestKernelLaunches(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	log := scripted(t, "libcuda.so.1")
	for _, o := range rowOperations(r, 3, 2, 2200) {
		o.run(t, BF16, 0)
	}
	headOperation(r, 300, 40, 1).run(t, BF16, 0)
	stepOperation(r, 4097, 1).run(t, BF16, 0)
	pagedOperation(r, pagedShape{16, 7, 3, 8, []int{span, 1}}).run(t, BF16, 0)
	pagedOperation(r, pagedShape{16, 4, 3, 8, []int{span + 1, 1, 1}}).run(t, BF16, 0)
	require.Equal(t, []string{
		"af_rms_norm_bf16 3x2 256 0", "af_rms_norm_bf16 3x2 256 0",
		"af_rms_norm_backward_bf16 3x1 256 8800", "af_sum_parts 69x1 256 0",
		"af_swiglu_bf16 3x2 256 0", "af_swiglu_backward_bf16 3x2 256 0",
		"af_rope_bf16 3x3 128 0", "af_rope_bf16 3x3 128 0",
		"af_head_forward 300x1 512 0", "af_head_backward_bf16 300x1 512 0",
		"af_adamw 3x1 256 0",
		"af_attend_paged_bf16 12x1 128 1152",
		"af_attend_paged_bf16 9x2 128 1152", "af_join_spans_bf16 3x2 128 0",
	}, launched(t, log))
}

// What can go wrong between the library and the driver is one line that says what to do.
func TestKernelFaults(t *testing.T) {
	o := rowOperations(rand.New(rand.NewPCG(6, 9)), 2, 1, 16)[2]
	run := func(t *testing.T) error { t.Helper(); return operate(o.name, -1, BF16, 0, 1, 0, o.matrices...) }
	for fault, want := range map[string]string{
		"launch": "cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED",
		"lacks":  "af_rope_bf16, which the library's kernels lack; build it anew (scripts/build_native.sh): CUDA_ERROR_NOT_FOUND",
	} {
		t.Run(fault, func(t *testing.T) {
			scripted(t, "libcuda.so.1")
			t.Setenv("SCRIPTED_CUDA_FAULT", fault)
			err := run(t)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "AGENTFLY_CUDA_KERNELS=0 computes with libtorch's own operations")
		})
	}
	t.Run("an image of something else", func(t *testing.T) {
		scripted(t, "libcuda.so.1")
		image := filepath.Join(t.TempDir(), "image")
		require.NoError(t, os.WriteFile(image, []byte("no kernels"), 0o600))
		require.NoError(t, scriptCUDA(filepath.Join(os.Getenv("AGENTFLY_NATIVE"), "test", "libcuda.so.1"), image, ""))
		require.ErrorContains(t, run(t), "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE")
		require.NoError(t, scriptCUDA("/nowhere/libcuda.so.1", image, ""))
		require.ErrorContains(t, run(t), "install NVIDIA's driver, which brings libcuda.so.1")
		require.NoError(t, scriptCUDA(filepath.Join(os.Getenv("AGENTFLY_NATIVE"), "test", "libstandins.so"), image, ""))
		require.ErrorContains(t, run(t), "libstandins.so has no cuInit; a driver of CUDA 12 or newer is needed")
		require.Error(t, scriptCUDA("", "", "/nowhere/stand-ins.so"))
	})
}

// A device that the carried kernels are not for computes by the expressions, and says so once. It is a process of its own, whose
// standard error is read.
func TestKernelsForAnotherDevice(t *testing.T) {
	o := rowOperations(rand.New(rand.NewPCG(7, 9)), 2, 1, 16)[3]
	if os.Getenv("AGENTFLY_TEST_ANOTHER_DEVICE") != "" {
		want := o.run(t, BF16, 0)
		log := scripted(t, "libcuda.so.1")
		for range 3 {
			require.Equal(t, want, o.run(t, BF16, 0))
		}
		require.NoFileExists(t, log)
		return
	}
	scripted(t, "libcuda.so.1") // or skip
	for fault, name := range map[string]string{"no-binary": "CUDA_ERROR_NO_BINARY_FOR_GPU", "ptx": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "off": ""} {
		c := exec.Command(os.Args[0], "-test.run=^TestKernelsForAnotherDevice$", "-test.v")
		c.Env = append(os.Environ(), "AGENTFLY_TEST_ANOTHER_DEVICE=1", "SCRIPTED_CUDA_FAULT="+fault)
		line := "agentfly: CUDA kernels: none of those that the library carries is for this device or its driver (" + name + "); libtorch's own operations are used, which are slower\n"
		count := 1
		if fault == "off" {
			c.Env = append(c.Env, "AGENTFLY_CUDA_KERNELS=0")
			line, count = "agentfly: CUDA kernels", 0
		}
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "PASS: TestKernelsForAnotherDevice")
		require.Equal(t, count, strings.Count(string(out), line), string(out))
	}
}

// devicePath is what a CUDA device takes in bfloat16.
func devicePath(c ModelConfig) path {
	if c.HeadDim%8 == 0 {
		return pathFlash
	}
	return pathSegments
}

// The whole path of CUDA in float32 on the CPU: own kernels, chunks of the head. Values and every gradient of a forest and of
// sequences against the CPU's own path.
func TestScriptedCUDAModel(t *testing.T) {
	for _, name := range []string{"llama_biases", "qwen2_tied", "qwen3"} {
		g := loadGolden(t, name)
		f := makeForest(rand.New(rand.NewPCG(1, 2)), g.Config.VocabSize, g.Temperature, [][]int{{20, 3}, {1, 7}, {5, 9, 3}})
		for i, b := range []*Batch{f.batch, plain(g.IDs, g.Temperature)} {
			run := func(p path) ([]float32, map[string][]float32) {
				m := g.model(t)
				require.NoError(t, setPath(m, p))
				logprobs, entropy, err := m.Logprobs(b)
				require.NoError(t, err)
				waveLoss(t, m, b, ForwardOptions{Checkpoint: layersIf(i == 0)})
				return append(logprobs, entropy...), gradients(t, m)
			}
			wantValues, want := run(pathKernels)
			t.Run(name, func(t *testing.T) {
				scripted(t, "libcuda.so.1")
				values, got := run(pathSegments)
				require.LessOrEqual(t, worst(t, values, wantValues), 2e-5)
				for p := range want {
					require.LessOrEqual(t, relative(t, got[p], want[p]), 2e-5, p)
				}
			})
		}
	}
}

// And in bfloat16, with float32 sums of bfloat16 products and flash attention where its heads allow: no farther from float32 than
// the CPU's own path may be.
func TestScriptedCUDAHalfModel(t *testing.T) {
	for name, addmm := range map[string]string{"llama_biases": "", "qwen2": "narrow-addmm", "qwen3": ""} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("STAND_INS", addmm)
			log := scripted(t, "libcuda.so.1")
			halfPrecision(t, name, devicePath(loadGolden(t, name).Config), 1.1)
			got := strings.Join(launched(t, log), "\n")
			for _, k := range []string{"af_head_forward", "af_head_backward_bf16", "af_rms_norm_bf16", "af_rms_norm_backward_bf16", "af_rope_bf16", "af_swiglu_bf16", "af_swiglu_backward_bf16"} {
				require.Contains(t, got, k+" ")
			}
		})
	}
}

// Adapters and a value head on the same path.
func TestScriptedCUDAHalfAdapter(t *testing.T) {
	scripted(t, "libcuda.so.1")
	for _, g := range adapterGoldens(t) {
		t.Run(g.Name, func(t *testing.T) { halfAdapter(t, g, devicePath(g.Config)) })
	}
}

// A forest whose segments share keys, in bfloat16 with flash attention: over four models no farther from float32 than the CPU's own path is, to
// a tenth, and the same bits whatever the order of threads.
func TestScriptedCUDAHalfForest(t *testing.T) {
	c := ModelConfig{
		VocabSize: 60, HiddenSize: 48, IntermediateSize: 72, NumLayers: 2, NumHeads: 6, NumKVHeads: 2, HeadDim: 16, RMSNormEps: 1e-5,
		QKVBias: true, QKNorm: true, InvFreq: slices.Repeat([]float32{1, 0.3, 0.1, 0.03}, 2),
	}
	f := makeForest(rand.New(rand.NewPCG(1, 2)), c.VocabSize, 0.8, [][]int{{20, 3}, {1, 7}, {5, 9, 3}})
	run := func(t *testing.T, dtype DType, p path) (values []float32, all map[string][]float32) {
		all = map[string][]float32{}
		for seed := range uint64(4) {
			m := tinyModel(t, c, 5+seed)
			require.NoError(t, m.SetDType(dtype))
			require.NoError(t, setPath(m, p))
			logprobs, entropy, err := m.Logprobs(f.batch)
			require.NoError(t, err)
			values = append(append(values, logprobs...), entropy...)
			waveLoss(t, m, f.batch, ForwardOptions{})
			for name, g := range gradients(t, m) {
				all[fmt.Sprint(seed, name)] = g
			}
			require.NoError(t, m.Close())
		}
		return values, all
	}
	exactValues, exact := run(t, F32, pathKernels)
	halfValues, half := run(t, BF16, pathKernels)
	_, bound := compareGradients(half, exact)
	scripted(t, "libcuda.so.1")
	values, gradient := run(t, BF16, pathFlash)
	_, distance := compareGradients(gradient, exact)
	t.Logf("values: %.5f from float32, the CPU's path %.5f; gradients %.4f and %.4f", rms(values, exactValues), rms(halfValues, exactValues), distance, bound)
	require.Greater(t, distance, 1e-4, "it computes in bfloat16")
	require.LessOrEqual(t, rms(values, exactValues), 1.1*rms(halfValues, exactValues))
	require.LessOrEqual(t, distance, 1.1*bound)
	for _, order := range []string{"descending", "3"} {
		t.Setenv("SCRIPTED_CUDA_ORDER", order)
		_, again := run(t, BF16, pathFlash)
		require.Equal(t, gradient, again, order)
	}
}

// The optimizer's kernel rounds the parameters that it changes: a forward behind steps has the bits of a model that is given the
// same parameters, also where a caller changed one in between, and where the moments come in chunks.
func TestScriptedCUDARoundsAsItSteps(t *testing.T) {
	g := loadGolden(t, "qwen2_tied")
	b := plain(g.IDs, g.Temperature)
	made := func(t *testing.T) *Model {
		m := g.model(t)
		require.NoError(t, m.SetDType(BF16))
		require.NoError(t, setPath(m, devicePath(g.Config)))
		return m
	}
	for _, offload := range []int64{0, 1000} {
		t.Run(fmt.Sprint(offload), func(t *testing.T) {
			log := scripted(t, "libcuda.so.1")
			m := made(t)
			config := DefaultAdamW()
			config.Offload = offload
			o, err := NewOptimizer(m, config, nil)
			require.NoError(t, err)
			defer o.Close()
			before, _, err := m.Logprobs(b)
			require.NoError(t, err)
			for step := range 3 {
				if step == 1 {
					p := m.Parameters()[1]
					v, err := m.Parameter(p.Name)
					require.NoError(t, err)
					for i := range v {
						v[i] *= 1.5
					}
					require.NoError(t, m.SetParameter(p.Name, F32, bytesOf(v), p.Shape))
				}
				waveLoss(t, m, b, ForwardOptions{})
				_, err := o.Step(1e-2, 1)
				require.NoError(t, err)
				got, _, err := m.Logprobs(b)
				require.NoError(t, err)
				twin := made(t)
				for _, p := range m.Parameters() {
					v, err := m.Parameter(p.Name)
					require.NoError(t, err)
					require.NoError(t, twin.SetParameter(p.Name, F32, bytesOf(v), p.Shape))
				}
				want, _, err := twin.Logprobs(b)
				require.NoError(t, err)
				require.Equal(t, bits(want), bits(got), "step %d", step)
				require.NotEqual(t, bits(before), bits(got))
				before = got
			}
			require.Contains(t, strings.Join(launched(t, log), "\n"), "af_adamw ")
		})
	}
}
