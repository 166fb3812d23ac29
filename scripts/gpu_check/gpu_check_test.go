package gpucheck

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bundle is a bundle of shell scripts in place of the programs, and a folder in place of libtorch.
type bundle struct {
	build   string            // what building the C++ library does
	starts  string            // what `agentfly version` does
	c10     string            // of lib/libc10.so
	torch   string            // of libtorch's version.py; "" for none
	files   map[string]string // more of the bundle's
	environ []string
}

const (
	builds     = `echo "$LIBTORCH"`
	withoutGPU = `printf 'agentfly 0\nlibtorch 2.9.0\ncuda     0 device(s)\n'`
	withGPU    = `printf 'agentfly 0\nlibtorch 2.9.0\ncuda     1 device(s)\n'`
)

// probes prints what gpu_probes.py would.
const probes = `import sys
print("software\tok\tPython 3")
print("device\tskipped\tno CUDA device")
if "device" not in sys.argv: print("asked for\tok\t" + "; ".join(sys.argv[1:]))
`

// agentfly is the program: its job in bfloat16 fails, that of two ranks leaves nothing, a resume leaves what AFTER_RESUME says. On a device it says
// where the engine samples.
const agentfly = `#!/bin/sh
case $1 in
version) STARTS ;;
train)
  case "$*" in *trainer.steps=8*|*trainer.steps=5*) ;; *bfloat16*) echo 'the loss is NaN | skipped'; exit 1 ;; esac
  case "$*" in *--ranks*) exit 0 ;; esac
  case "$*" in
  *engine.device=cpu*) echo 'note: training runs on cuda; the local engine does not (engine.device: cpu): it decodes on 8 CPUs, from a copy' ;;
  *device=cuda*deterministic=false*) echo 'note: the local engine samples on cuda too, in the type of the trainer' ;;
  *tiny.yaml*device=cuda*) echo 'note: training runs on cuda; the local engine does not (deterministic: true): it decodes on 8 CPUs, from a copy' ;;
  esac
  job=$2; shift 2
  while test "$1" != --output; do shift; done
  mkdir -p "$2/checkpoints/last"
  case "$*" in *--resume*) echo "${AFTER_RESUME:-weights}" ;; *) echo weights ;; esac >"$2/checkpoints/last/model.safetensors"
  printf '{"reward/mean": 0.5, "seconds/step": 2, "seconds/train": 1, "tokens/sample_per_second": 2000}\n{"reward/mean": 0.95, "seconds/step": 2, "seconds/train": 2, "tokens/sample_per_second": 3000}\n' >"$2/metrics.jsonl"
  case $job in *calculator*) sleep "${MAIN_JOB:-0}" ;; esac
  echo '{"steps": 6, "seconds": 2, "reward": {"first": 0.25, "last": 0.5}, "mismatch_max": 1e-6}' >"$2/summary.json" ;;
esac
`

// cgoTest is the test binary: a step of 1.5B, and of 7B whose parameters are trained, needs more memory than there is. HANG makes the goldens
// take that long.
const cgoTest = `#!/bin/sh
step() {
  case "$AGENTFLY_STEP" in
  '1.5B'*checkpoint*) ;;
  '1.5B'*|'7B'*checkpoint|'7B'*checkpoint\ steps*|'7B'*micro*) echo '    x_test.go:1: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has'; exit 1 ;;
  *3B*) echo '    Error:  	an illegal | address'; exit 1 ;;
  esac
  set -- $AGENTFLY_STEP
  adapter=0 checkpoint=0 micro=1
  for word; do case $word in adapter=*) adapter=${word#*=} ;; micro=*) micro=${word#*=} ;; checkpoint) checkpoint=28 ;; esac; done
  echo '{"model": "'$1'", "batch": "'$2'", "device": "cuda", "dtype": "'$3'", "attention": "'$AGENTFLY_ATTENTION'", "checkpoint": '$checkpoint', "adapter": '$adapter', "micro": '$micro', "segments": 8, "ms": 100, "tokens_s": 81920, "mfu": 0.35, "peak_gib": 20.25, "loss_first": 12, "loss_last": 11.5, "profiled_ms": 120, "stages": {"linear": {"forward_ms": 20, "backward_ms": 40, "calls": 9}}, "launches": 1234, "busy": 0.9, "trace": {"Busiest": [{"Name": "a|b", "Calls": 3, "Seconds": 0.01}]}}' >>"$AGENTFLY_STEP_OUT"
  printf -- '--- PASS: TestTrainingStep (0.1s)\nPASS\n'
}
case "$*" in
*TestTrainingStep*) step ;;
*GoldenScores*) sleep "${HANG:-0}"; printf -- '=== RUN   TestGoldenScores\n    x_test.go:3: worst difference: 1.5e-07\n--- PASS: TestGoldenScores (0.1s)\nPASS\n' ;;
*GoldenGradients*) printf -- '=== RUN   TestGoldenGradients\n    Error:  a | b\n--- FAIL: TestGoldenGradients (0.1s)\nFAIL\n'; exit 1 ;;
*CUDAAgrees*) printf -- '=== RUN   TestCUDAAgreesWithTheCPU\n    device_test.go:5: no CUDA device\n--- SKIP: TestCUDAAgreesWithTheCPU (0.0s)\nPASS\n' ;;
*"Benchmark(Decode"*) printf 'BenchmarkDecode/bf16/64-8\t20\t1000 ns/op\t5000.4 tokens/s\t3 GFLOP/s\nBenchmarkPrefill/bf16/512-8\t20\t9 ns/op\t70000 tokens/s\nPASS\n' ;;
*TestKernel*|*"Test(KernelsOnCUDA"*) printf -- '--- PASS: TestKernelsOnCUDA (0.1s)\nPASS\n' ;;
*) printf 'testing: warning: no tests to run\nPASS\n' ;;
esac
`

// laid writes the bundle into a folder and returns the folder.
func (b bundle) laid(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing, which the check needs")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	for _, name := range []string{"gpu_check.sh", "skipped.awk", "gpu_rows.py"} {
		text, err := os.ReadFile("../" + name)
		require.NoError(t, err)
		write("bundle/src/scripts/"+name, string(text))
	}
	write("bundle/commit", "0123abc\n")
	write("libtorch/lib/libc10.so", b.c10)
	if b.torch != "" {
		write("libtorch/version.py", "__version__ = '"+b.torch+"'\n")
	}
	for _, name := range []string{"cgo", "policy", "trainer"} {
		write("bundle/src/"+name+"/x", "")
	}
	write("bundle/src/scripts/fetch.py", "import os\nprint(os.environ['LIBTORCH'])\n")
	write("bundle/src/scripts/gpu_probes.py", probes)
	write("bundle/src/scripts/gpu_transformers.py", "import transformers\n")
	write("bundle/src/scripts/build_native.sh", "#!/bin/sh\n"+b.build+"\n")
	write("path/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not talk to the driver'\nexit 9\n")
	write("path/compute-sanitizer", "#!/bin/sh\nshift 6\n\"$@\"\necho '========= ERROR SUMMARY: 0 errors'\n")
	write("bundle/bin/agentfly", strings.ReplaceAll(agentfly, "STARTS", b.starts))
	write("bundle/bin/cgo.test", cgoTest)
	write("bundle/bin/trainer.test", "#!/bin/sh\nprintf -- '--- PASS: TestOne (0.1s)\\n--- PASS: TestTwo (0.1s)\\nPASS\\n'\n")
	write("bundle/bin/policy.test", "#!/bin/sh\nprintf -- '--- PASS: TestSmolLM2Logprobs (0.1s)\\nPASS\\n'\n")
	for name, text := range b.files {
		write(name, text)
	}
	return dir
}

// command runs the script that lies in the bundle.
func (b bundle) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"), "LIBTORCH="+filepath.Join(dir, "libtorch"), "QUICK=1", "OUT="+filepath.Join(dir, "out"), "CACHE="+filepath.Join(dir, "cache"))
	cmd.Env = append(cmd.Env, b.environ...)
	return cmd
}

// check runs a stage of gpu_check.sh and returns its table: the whole text, and its rows by name, [result, detail].
func (b bundle) check(t *testing.T, stage string) (text string, rows map[string][2]string, status int) {
	t.Helper()
	dir := b.laid(t)
	printed, err := b.command(t.Context(), dir, filepath.Join(dir, "bundle/src/scripts/gpu_check.sh"), stage).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else {
		require.NoError(t, err, string(printed))
	}
	text, rows = table(t, dir, stage)
	goesBack(t, dir, stage)
	return text, rows, status
}

func table(t *testing.T, dir, stage string) (text string, rows map[string][2]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "out", "stage-"+stage+".md"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Equal(t, []string{"", "| check | result | detail |", "|---|---|---|"}, lines[1:4])
	rows = map[string][2]string{}
	for _, line := range lines[4:] {
		if line == "" {
			break // another table
		}
		cells := strings.Split(line, "|")
		require.Len(t, cells, 5, "a row has three columns: %s", line)
		rows[strings.TrimSpace(cells[1])] = [2]string{strings.TrimSpace(cells[2]), strings.ReplaceAll(strings.TrimSpace(cells[3]), dir, "DIR")}
	}
	return string(data), rows
}

// goesBack holds what a stage leaves against what comes back from a machine: few small files and no folder. The archive has the logs.
func goesBack(t *testing.T, dir, stage string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "out"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(entries), 8)
	for _, e := range entries {
		require.True(t, e.Type().IsRegular(), e.Name())
		require.Regexp(t, `^[A-Za-z0-9._-]+$`, e.Name())
		require.NotContains(t, e.Name(), ".new")
	}
	f, err := os.Open(filepath.Join(dir, "out", "stage-"+stage+".tar.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.LessOrEqual(t, h.Size, int64(2_000_000), h.Name)
		names = append(names, h.Name)
	}
	require.Contains(t, names, "logs-"+stage+"/rows.md")
}

// Whatever a part does, the table says so and the others still run.
func TestGPUCheckGoesOnAfterAFailure(t *testing.T) {
	text, rows, status := bundle{build: builds, starts: withoutGPU}.check(t, "2")
	require.Equal(t, 1, status)
	require.Contains(t, text, "Stage 2. Commit 0123abc; nvidia-smi fails; torch 2.9.0; ")
	for name, want := range map[string][2]string{
		"the program starts":           {"ok", "libtorch 2.9.0, 0 CUDA device(s): the tests run on cpu"},
		"goldens: scores":              {"ok", "1 test(s) on cpu, worst difference 1.5e-07"},
		"goldens: gradients":           {"FAILED", "1 of 1 tests failed (exit status 1), see goldens__gradients.log: Error: a / b"},
		"shared prefixes":              {"FAILED", "no test of cgo is named Tree/Forest/Prefix"},
		"CUDA against the CPU kernels": {"skipped", "no CUDA device"},
		"the trainer":                  {"ok", "2 test(s) on cpu"},
	} {
		require.Equal(t, want, rows[name], name)
	}
}

// What the rest needs is told with its reason, and ends the stage.
func TestGPUCheckNamesWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		bundle
		row  string
		want string
	}{
		"another C++ ABI": {bundle{c10: "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"}, "libtorch", "DIR/libtorch has the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), PyTorch's own wheels have the new one since 2.7: install such a one, or set LIBTORCH"},
		"no compiler":     {bundle{build: "echo 'a.cc:1:2: error: no header' >&2; echo 'build: a C++ file did not compile' >&2; exit 1"}, "the C++ library compiles and links", "see build.log: a.cc:1:2: error: no header"},
		"another glibc":   {bundle{build: builds, starts: "echo 'libc.so.6: version GLIBC_2.99 not found' >&2; exit 1"}, "the program starts", "libc.so.6: version GLIBC_2.99 not found"},
		"no devices told": {bundle{build: builds, starts: "echo 'agentfly 0'"}, "the program starts", "agentfly 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, rows, status := c.check(t, "2")
			require.Equal(t, 1, status)
			require.Equal(t, [2]string{"FAILED", c.want}, rows[c.row])
			require.NotContains(t, rows, "goldens: scores")
		})
	}
}

// Headers of NCCL that are missing are a failure, and the rest is built without NCCL.
func TestGPUCheckGoesOnWithoutNCCL(t *testing.T) {
	_, rows, status := bundle{starts: withoutGPU, build: `if test "${AGENTFLY_BUILD_NCCL:-1}" != 0; then
  echo 'nccl.h:1:2: fatal error: nv/target: No such file' >&2
  echo 'build: or set AGENTFLY_BUILD_NCCL=0' >&2
  exit 1
fi
` + builds}.check(t, "2")
	require.Equal(t, 1, status)
	require.Equal(t, [2]string{"FAILED", "nccl.h:1:2: fatal error: nv/target: No such file"}, rows["NCCL compiles"])
	require.Equal(t, "ok", rows["the C++ library compiles and links"][0])
	require.Equal(t, "ok", rows["goldens: scores"][0])
}

// The bundle's library is taken where it was compiled against the torch that is there and loads; else the machine compiles it.
func TestGPUCheckTakesTheLibraryAlong(t *testing.T) {
	b := bundle{build: builds, starts: withoutGPU, torch: "2.11.0+cu130", files: map[string]string{"bundle/lib/torch-version": "2.11.0\n"}}
	_, rows, _ := b.check(t, "4")
	require.Equal(t, [2]string{"ok", "the bundle's, compiled against torch 2.11.0"}, rows["the C++ library"])
	require.NotContains(t, rows, "the C++ library compiles and links")

	b.torch = "2.12.0"
	_, rows, _ = b.check(t, "4")
	require.NotContains(t, rows, "the C++ library")
	require.Equal(t, "ok", rows["the C++ library compiles and links"][0])

	b.torch = "2.11.0"
	b.starts = `case $LD_LIBRARY_PATH in */bundle/lib:*) echo 'undefined symbol: x' >&2; exit 127 ;; *) ` + withoutGPU + ` ;; esac`
	_, rows, status := b.check(t, "4")
	require.Equal(t, 1, status)
	require.Equal(t, [2]string{"FAILED", "compiled against torch 2.11.0, as is here: undefined symbol: x"}, rows["the bundle's C++ library"])
	require.Equal(t, "ok", rows["the C++ library compiles and links"][0])
	require.Equal(t, "ok", rows["own kernels against ATen"][0])
}

// Every probe is a row as soon as it is done; the time of the stage ends one that hangs.
func TestGPUCheckProbes(t *testing.T) {
	text, rows, status := bundle{build: builds, starts: withoutGPU}.check(t, "1")
	require.Zero(t, status)
	require.Equal(t, [2]string{"ok", "Python 3"}, rows["software"])
	require.Equal(t, [2]string{"skipped", "no CUDA device"}, rows["device"])
	require.Contains(t, rows, "the program starts")
	require.Less(t, strings.Index(text, "software"), strings.Index(text, "the program starts"))

	hangs := bundle{build: builds, starts: withoutGPU, environ: []string{"BUDGET=10"}, files: map[string]string{
		"bundle/src/scripts/gpu_probes.py": "import time\nprint('software\\tok\\tPython 3', flush=True)\ntime.sleep(60)\n",
	}}
	start := time.Now()
	_, rows, status = hangs.check(t, "1")
	require.Less(t, time.Since(start), 40*time.Second)
	require.Equal(t, 1, status)
	require.Equal(t, [2]string{"ok", "Python 3"}, rows["software"])
	require.Contains(t, rows["probes"][1], "ended with status 124")
}

// A part gets what is left of the stage; what does not fit is not run, and says so.
func TestGPUCheckKeepsItsTime(t *testing.T) {
	b := bundle{build: builds, starts: withoutGPU, environ: []string{"HANG=60", "BUDGET=8"}}
	start := time.Now()
	_, rows, _ := b.check(t, "2")
	require.Less(t, time.Since(start), 45*time.Second)
	require.Equal(t, "not run", rows["goldens: scores"][0])
	require.Regexp(t, `^(stopped: of the 120 s that it may take \d were left of the stage|the 8 s of the stage are used up)$`, rows["goldens: scores"][1], "the latter where the machine is busy")
	require.Equal(t, [2]string{"not run", "the 8 s of the stage are used up"}, rows["goldens: gradients"])
	require.Equal(t, [2]string{"not run", "the 8 s of the stage are used up"}, rows["real weights (SmolLM2) against transformers"])
}

// Of a stage the parts that are asked for.
func TestGPUCheckOfSomeParts(t *testing.T) {
	_, rows, status := bundle{build: builds, starts: withGPU, environ: []string{"ONLY=goldens: s|^device$"}}.check(t, "2")
	require.Zero(t, status)
	require.Equal(t, "ok", rows["goldens: scores"][0])
	require.NotContains(t, rows, "goldens: gradients")
	require.NotContains(t, rows, "the trainer")
	_, rows, _ = bundle{build: builds, starts: withGPU, environ: []string{"ONLY=goldens: s|^device$"}}.check(t, "1")
	require.Contains(t, rows, "device")
	require.NotContains(t, rows, "memory rate")
}

// A name that no part has is told, and so is a pattern that is none.
func TestGPUCheckOfNoPart(t *testing.T) {
	for _, only := range []string{"golden: s", "("} {
		_, rows, status := bundle{build: builds, starts: withGPU, environ: []string{"ONLY=" + only}}.check(t, "2")
		require.Equal(t, 1, status)
		require.Equal(t, [2]string{"FAILED", "no part of stage 2 has such a name, or it is no pattern of grep -E"}, rows["ONLY="+only])
	}
	_, rows, _ := bundle{build: builds, starts: withGPU, environ: []string{"ONLY=3B"}}.check(t, "3")
	require.NotContains(t, rows, "training step, 0.5B, 8x1024, bf16")
	require.NotContains(t, rows, "training step, 0.5B, 8x1024, bf16, attention a segment at a time", "a part that is not wanted is none that failed")
}

// Tests run beside each other: what one waits for does not hold up the others, and rows come in the order of the table.
func TestGPUCheckRunsTestsBesideEachOther(t *testing.T) {
	b := bundle{build: builds, starts: withGPU, environ: []string{"HANG=3", "BUDGET=60", "AT_ONCE=20"}, files: map[string]string{
		"bundle/bin/trainer.test": "#!/bin/sh\nsleep 3\nprintf -- '--- PASS: TestOne (0.1s)\\nPASS\\n'\n",
		"bundle/bin/policy.test":  "#!/bin/sh\nsleep 3\nprintf -- '--- PASS: TestOne (0.1s)\\nPASS\\n'\n",
	}}
	text, rows, _ := b.check(t, "2")
	for _, name := range []string{"goldens: scores", "the trainer", "real weights (SmolLM2) against transformers"} {
		require.Equal(t, "ok", rows[name][0], name)
	}
	require.Less(t, strings.Index(text, "| goldens: scores |"), strings.Index(text, "| goldens: gradients |"))
	require.Less(t, strings.Index(text, "| goldens: gradients |"), strings.Index(text, "| the trainer |"))
}

// A stage that is told to end stops what runs, beside each other too, and says so.
func TestGPUCheckIsTold(t *testing.T) {
	b := bundle{build: builds, starts: withGPU, environ: []string{"AT_ONCE=20"}, files: map[string]string{
		"bundle/bin/trainer.test": "#!/bin/sh\necho $$ >>\"$OUT/../running\"\nexec sleep 300\n",
	}}
	dir := b.laid(t)
	cmd := b.command(t.Context(), dir, filepath.Join(dir, "bundle/src/scripts/gpu_check.sh"), "2")
	require.NoError(t, cmd.Start())
	var running []string
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "running"))
		running = strings.Fields(string(text))
		said, _ := os.ReadFile(filepath.Join(dir, "out", "stage-2.md"))                                      // not there at first
		return err == nil && len(running) == 2 && strings.Contains(string(said), "| memory and optimizer |") // the trainer has two rows
	}, 30*time.Second, 20*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	err := cmd.Wait()
	require.Error(t, err)
	_, rows := table(t, dir, "2")
	require.Equal(t, [2]string{"FAILED", "ended by a signal"}, rows["stage 2"])
	require.Equal(t, "ok", rows["goldens: scores"][0], "what was done is told")
	require.NotEqual(t, "it ended without a result", rows["real weights (SmolLM2) against transformers"][1], "also behind one that was stopped")
	require.Equal(t, [2]string{"FAILED", "it ended without a result"}, rows["the trainer"])
	for _, process := range running {
		require.Eventually(t, func() bool { _, err := os.Stat("/proc/" + process); return err != nil }, 10*time.Second, 20*time.Millisecond)
	}
}

// Where nothing of the stage is left, neither probes nor a build begin.
func TestGPUCheckBeginsNothingLate(t *testing.T) {
	marks := func(name string) string { return "touch \"$OUT/../" + name + "\"\n" }
	b := bundle{build: marks("built") + builds, starts: withoutGPU, environ: []string{"BUDGET=0"}, files: map[string]string{
		"bundle/src/scripts/gpu_probes.py": "import os\nopen(os.environ['OUT'] + '/../probed', 'w')\n",
	}}
	dir := b.laid(t)
	printed, err := b.command(t.Context(), dir, filepath.Join(dir, "bundle/src/scripts/gpu_check.sh"), "1").CombinedOutput()
	require.NoError(t, err, string(printed))
	_, rows := table(t, dir, "1")
	require.Equal(t, map[string][2]string{
		"probes":                             {"not run", "the 0 s of the stage are used up"},
		"the C++ library compiles and links": {"not run", "the 0 s of the stage are used up"},
	}, rows)
	require.NoFileExists(t, filepath.Join(dir, "probed"))
	require.NoFileExists(t, filepath.Join(dir, "built"))
}

// The machine's compiler takes the kernels that came with the bundle: it has no nvcc.
func TestGPUCheckTakesTheKernelsAlong(t *testing.T) {
	b := bundle{build: `grep -q 'fat binary' "$AGENTFLY_KERNELS" || exit 1
` + builds, starts: withoutGPU, files: map[string]string{"bundle/kernels.fatbin": "fat binary"}}
	_, rows, _ := b.check(t, "4")
	require.Equal(t, "ok", rows["the C++ library compiles and links"][0])
}

// A test whose subtests are all skipped shows nothing, though it passes.
func TestGPUCheckOfSkippedSubtests(t *testing.T) {
	printed := func(lines ...string) string {
		return "#!/bin/sh\ncat <<'E'\n" + strings.Join(lines, "\n") + "\nPASS\nE\n"
	}
	skipped := []string{
		"=== RUN   TestKernelsEqual", "=== RUN   TestKernelsEqual/a", "    x_test.go:1: the scripted libcuda is not here", "=== RUN   TestKernelsEqual/b", "=== RUN   TestKernelsEqual/b/c", "    x_test.go:1: the scripted libcuda is not here",
		"--- PASS: TestKernelsEqual (0.00s)", "    --- SKIP: TestKernelsEqual/a (0.00s)", "    --- PASS: TestKernelsEqual/b (0.00s)", "        --- SKIP: TestKernelsEqual/b/c (0.00s)",
	}
	b := bundle{build: builds, starts: withGPU, files: map[string]string{"bundle/bin/cgo.test": printed(skipped...)}}
	_, rows, _ := b.check(t, "4")
	require.Equal(t, [2]string{"skipped", "the scripted libcuda is not here"}, rows["own kernels against ATen"])

	b.files["bundle/bin/cgo.test"] = printed("=== RUN   TestKernels", "=== RUN   TestKernels/a", "--- PASS: TestKernels (0.00s)", "    --- PASS: TestKernels/a (0.00s)")
	_, rows, _ = b.check(t, "4")
	require.Equal(t, [2]string{"ok", "1 test(s) on cuda"}, rows["own kernels against ATen"])

	b.files["bundle/bin/cgo.test"] = printed(append(skipped, "=== RUN   TestKernels", "--- PASS: TestKernels (0.00s)")...)
	text, _, _ := b.check(t, "4")
	require.Contains(t, text, "| own kernels against ATen | ok | 1 test(s) on cuda |\n| own kernels against ATen | skipped | the scripted libcuda is not here |")
}

// A stage that is killed leaves the rows that it had, and their logs.
func TestGPUCheckIsCutOff(t *testing.T) {
	b := bundle{build: builds, starts: withoutGPU, environ: []string{"HANG=60"}}
	dir := b.laid(t)
	cmd := b.command(t.Context(), dir, filepath.Join(dir, "bundle/src/scripts/gpu_check.sh"), "2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	path := filepath.Join(dir, "out", "stage-2.md")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "the program starts")
	}, 30*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "out", "stage-2.tar.gz"))
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
	time.Sleep(200 * time.Millisecond) // the last row's archive is being written
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait() // killed
	_, rows := table(t, dir, "2")
	require.Equal(t, "ok", rows["the program starts"][0])
}

// The table of training steps: rows and their own columns; what does not fit is tried with layers computed again.
func TestGPUCheckSteps(t *testing.T) {
	text, rows, status := bundle{build: builds, starts: withGPU}.check(t, "3")
	require.Equal(t, 1, status)
	require.Equal(t, [2]string{"ok", "cuda: 100.0 ms, 81,920 tokens/s, MFU 35.0%, 1,234 launches, device busy 90%, peak 20.2 GiB; ms a stage when each waits (120.0 in all): embedding -, elementwise -, linear 60.0, attention -, head -, optimizer -, other -"}, rows["training step, 0.5B, 8x1024, bf16"])
	require.Equal(t, [2]string{"FAILED", "out of memory: Tried to allocate 2.00 GiB."}, rows["training step, 1.5B, 1x8192, bf16"])
	require.Equal(t, "ok", rows["training step, 1.5B, 1x8192, bf16, layers computed again"][0])
	require.Equal(t, [2]string{"FAILED", "exit status 1, see training_step__3B__8x1024__bf16.log: Error: an illegal / address"}, rows["training step, 3B, 8x1024, bf16"])
	require.NotContains(t, rows, "training step, 3B, 8x1024, bf16, layers computed again")
	require.Equal(t, [2]string{"skipped", "transformers is not installed"}, rows["transformers, 0.5B, 8x1024"])
	require.Equal(t, [2]string{"ok", "tokens/s: Decode/bf16/64-8 5000, Prefill/bf16/512-8 70000"}, rows["decode and prefill, 0.5B"])
	require.Contains(t, text, "\n| model | batch | type | attention | kept | ms | tokens/s | MFU | embedding |")
	require.Contains(t, text, "\n| 1.5B | 8x192+8x104 (8) | bf16 | default | inputs of 28 | 100.0 | 81,920 | 35.0% | - | - | 60.0 |")
	require.Contains(t, text, "\n| 0.5B | 8x1024 (8) | bf16 | segments | all |", "attention a segment at a time beside it")

	_, rows, status = bundle{build: builds, starts: withoutGPU}.check(t, "3")
	require.Zero(t, status)
	require.Equal(t, [2]string{"skipped", "no CUDA device"}, rows["training step, 3B, 8x192+8x104, bf16"])
	require.Equal(t, "ok", rows["training step, tiny, on the CPU"][0])
}

// Own kernels under the checker of memory, and 7B until it fits.
func TestGPUCheckFindsWhatFits(t *testing.T) {
	text, rows, status := bundle{build: builds, starts: withGPU}.check(t, "4")
	require.Equal(t, 1, status)
	require.Equal(t, [2]string{"ok", "1 test(s) on cuda"}, rows["own kernels against ATen"])
	require.Equal(t, [2]string{"ok", "ERROR SUMMARY: 0 errors, 1 test(s)"}, rows["compute-sanitizer, memcheck"])
	require.Equal(t, "FAILED", rows["training step, 7B 8x1024 bf16 checkpoint"][0])
	require.Equal(t, "FAILED", rows["training step, 7B 1x2048 bf16 checkpoint"][0])
	require.Equal(t, "ok", rows["training step, 7B 8x1024 bf16 adapter=16"][0])
	require.NotContains(t, rows, "training step, 7B 8x1024 bf16 checkpoint adapter=16", "it fits with all of its layers kept")
	require.Contains(t, text, "\n| 7B, LoRA 16 | 8x1024 (8) |")
}

// Jobs: what they came to, a resume's bits, and the model that comes in parts.
func TestGPUCheckJobs(t *testing.T) {
	b := bundle{build: builds, starts: withGPU, files: map[string]string{"bundle/model.name": "m.gguf 5 2\n", "bundle/model.part-0": "abc"}}
	_, rows, status := b.check(t, "5")
	require.Equal(t, 1, status)
	require.Equal(t, [2]string{"ok", "6 steps in 2 s, reward 0.250 to 0.500, engine and trainer 1.0e-06 apart; 0.9 reached at step 2 (4 s); train 1.50 s a step; 2,500 tokens/s sampled; sampled on cuda"}, rows["training job (examples/tiny.yaml)"])
	require.Regexp(t, `; sampled on 8 CPUs \(engine.device: cpu\)$`, rows["training job (examples/tiny.yaml), engine.device: cpu"][1])
	require.Equal(t, [2]string{"FAILED", "the loss is NaN / skipped"}, rows["training job (examples/tiny.yaml), bf16"])
	require.Equal(t, "ok", rows["the same bits after a resume"][0], rows["the same bits after a resume"][1])
	require.Regexp(t, `^1 file\(s\), sha256 of model.safetensors [0-9a-f]{12}; sampled on 8 CPUs \(deterministic: true\)$`, rows["the same bits after a resume"][1])
	require.Equal(t, [2]string{"skipped", "one CUDA device; NCCL wants one for each rank"}, rows["training job, two ranks over NCCL"])
	require.Equal(t, [2]string{"ok", "memory given back and taken again; CUDA IPC between two processes"}, rows["asked for"])
	const main = "main job (SmolLM2, examples/calculator.yaml)"
	require.Equal(t, [2]string{"skipped", "the model is not here: take all parts of it along (1 of 2 are)"}, rows[main])

	b.files["bundle/model.part-1"] = "de"
	b.environ = []string{"AFTER_RESUME=others"}
	_, rows, _ = b.check(t, "5")
	require.Equal(t, "ok", rows[main][0])
	require.Equal(t, [2]string{"FAILED", "gpu_rows: other bits after a resume: model.safetensors"}, rows["the same bits after a resume"])

	b.environ = []string{"MAIN_JOB=60", "MAIN_SECONDS=2"}
	_, rows, _ = b.check(t, "5")
	require.Equal(t, "FAILED", rows[main][0])
	require.Contains(t, rows[main][1], "stopped after 2 s")
	require.Equal(t, [2]string{"ok", "cut after step 2 (4 s), reward 0.500 to 0.950; 0.9 reached at step 2 (4 s); train 1.50 s a step; 2,500 tokens/s sampled"}, rows[main+", as far as it came"])

	b.starts, b.environ = withoutGPU, nil
	_, rows, _ = b.check(t, "5")
	require.Equal(t, "FAILED", rows["training job, two ranks over Gloo"][0], "a job that leaves no summary did not work")
	require.Equal(t, [2]string{"skipped", "no CUDA device"}, rows[main])
}

// The archive that make gpu-bundle makes, with the script beside it; all stages at once; and what is no stage.
func TestGPUCheckOfAnArchive(t *testing.T) {
	b := bundle{build: builds, starts: withoutGPU}
	dir := b.laid(t)
	carried := filepath.Join(dir, "carried")
	require.NoError(t, os.Mkdir(carried, 0o755))
	for _, c := range [][]string{
		{"tar", "-C", filepath.Join(dir, "bundle"), "-czf", filepath.Join(carried, "bundle.tar.gz"), "."},
		{"cp", "../gpu_check.sh", carried},
		{"rm", "-r", filepath.Join(dir, "bundle")},
	} {
		printed, err := exec.Command(c[0], c[1:]...).CombinedOutput()
		require.NoError(t, err, string(printed))
	}
	script := filepath.Join(carried, "gpu_check.sh")
	printed, err := b.command(t.Context(), dir, script, "all").CombinedOutput()
	require.Error(t, err, "a golden fails")
	text, err := os.ReadFile(filepath.Join(dir, "out", "gpu.md"))
	require.NoError(t, err, string(printed))
	for _, stage := range []string{"1", "2", "3", "4", "5"} {
		require.Contains(t, string(text), "Stage "+stage+". Commit 0123abc")
		goesBack(t, dir, stage)
	}
	printed, err = b.command(t.Context(), dir, script, "6").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(printed), "usage: gpu_check.sh STAGE")

	require.NoError(t, os.WriteFile(filepath.Join(carried, "bundle.tar.gz"), []byte("half"), 0o644))
	printed, err = b.command(t.Context(), dir, script, "1").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(printed), "bundle.tar.gz is not whole")
}

// A libtorch with CUDA and without what NCCL is compiled with does not give a library that is only slower.
func TestBuildRefusesCUDAWithoutNCCL(t *testing.T) {
	for _, need := range []string{"python3", "g++"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skip(need + " is missing, which the build needs")
		}
	}
	for _, header := range []string{"/usr/include/nccl.h", "/usr/local/include/nccl.h", "/usr/local/cuda/include/nccl.h"} {
		if _, err := os.Stat(header); err == nil {
			t.Skip(header + " is there, which the build finds")
		}
	}
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for _, name := range []string{"libtorch_cpu.so", "libtorch_cuda.so", "libc10.so"} {
		write("torch/lib/"+name, "")
	}
	write("torch/include/ATen/ATen.h", "#error this is no libtorch\n")
	write("torch/include/torch/headeronly/version.h", "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n")
	write("gotorch/cgotorch/x.cc", "")
	write("gotorch/cgotorch/x.h", "")
	build := func(environment ...string) string {
		cmd := exec.Command("sh", "../build_native.sh")
		cmd.Env = append(os.Environ(), append(environment, "LIBTORCH="+filepath.Join(dir, "torch"), "AGENTFLY_GOTORCH="+filepath.Join(dir, "gotorch"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))...)
		printed, err := cmd.CombinedOutput()
		require.Error(t, err, string(printed))
		return string(printed)
	}
	printed := build()
	require.Contains(t, printed, "nccl.h: No such file")
	require.Contains(t, printed, "AGENTFLY_BUILD_NCCL=0")
	require.NotContains(t, printed, "compiling")

	write("nvidia/nccl/include/nccl.h", "#include <nv/target>\n") // of nvidia-cuda-cccl, which torch does not require
	require.Contains(t, build(), "nv/target: No such file")

	compiler, err := exec.LookPath("g++") // it takes a minute over the files that need no libtorch
	require.NoError(t, err)
	write("bin/g++", "#!/bin/sh\ncase \" $* \" in *' -c '*) exit 1 ;; esac\nexec "+compiler+" \"$@\"\n")
	require.NoError(t, os.Chmod(filepath.Join(dir, "bin/g++"), 0o755))
	path := "PATH=" + filepath.Join(dir, "bin") + string(filepath.ListSeparator) + os.Getenv("PATH")
	require.Contains(t, build("AGENTFLY_BUILD_NCCL=0", "AGENTFLY_BUILD_KERNELS=0", path), "a C++ file did not compile")
}

// A path with a blank comes apart in the compiler's commands and in CGO_LDFLAGS: the build says so before it fetches or compiles anything.
func TestBuildRefusesBlanks(t *testing.T) {
	for _, need := range []string{"python3", "g++"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skip(need + " is missing, which the build needs")
		}
	}
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	script, err := os.ReadFile("../build_native.sh")
	require.NoError(t, err)
	for _, checkout := range []string{"checkout", "a checkout"} {
		write(checkout+"/scripts/build_native.sh", string(script))
		write(checkout+"/scripts/fetch.py", "import os\nprint(os.environ['LIBTORCH'])\n")
		write(checkout+"/cgo/src/x.cc", "#error compiled\n")
	}
	for _, torch := range []string{"torch", "a torch"} {
		write(torch+"/include/x.h", "")
		write(torch+"/lib/libc10.so", "")
	}
	for _, gotorch := range []string{"gotorch", "a gotorch"} {
		write(gotorch+"/cgotorch/x.cc", "#error compiled\n")
	}
	for _, c := range []struct{ checkout, cache, torch, gotorch, says string }{
		{"a checkout", "cache", "torch", "gotorch", "the checkout's path has a blank, which the compiler's flags cannot hold: " + dir + "/a checkout; move it"},
		{"checkout", "a cache", "torch", "gotorch", "the cache's path has a blank, which the compiler's flags cannot hold: " + dir + "/a cache/agentfly/native; set XDG_CACHE_HOME to another folder"},
		{"checkout", "cache", "a torch", "gotorch", "libtorch's path has a blank, which the compiler's flags cannot hold: " + dir + "/a torch; set LIBTORCH to another folder"},
		{"checkout", "cache", "torch", "a gotorch", "gotorch's path has a blank, which the compiler's flags cannot hold: " + dir + "/a gotorch; set GOMODCACHE to another folder"},
	} {
		cmd := exec.Command("sh", filepath.Join(dir, c.checkout, "scripts/build_native.sh"))
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, c.cache), "LIBTORCH="+filepath.Join(dir, c.torch), "AGENTFLY_GOTORCH="+filepath.Join(dir, c.gotorch))
		printed, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, "build: "+c.says+"\n", string(printed))
	}
}
