package gpucheck

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bundle is a bundle of shell scripts in place of the programs, and a folder in place of libtorch.
type bundle struct {
	build  string // what building the C++ library does
	starts string // what `agentfly version` does
	c10    string // of lib/libc10.so
}

const (
	builds     = `echo "$LIBTORCH"`
	withoutGPU = `printf 'agentfly 0\nlibtorch 2.9.0\ncuda     0 device(s)\n'`
)

// check runs gpu_check.sh and returns its table: the line above it, and its rows by name, [result, detail].
func (b bundle) check(t *testing.T) (head string, rows map[string][2]string, status int) {
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
	for _, name := range []string{"gpu_check.sh", "skipped.awk"} {
		text, err := os.ReadFile("../" + name)
		require.NoError(t, err)
		write("src/scripts/"+name, string(text))
	}
	write("commit", "0123abc\n")
	write("libtorch/lib/libc10.so", b.c10)
	write("src/cgo/x", "")
	write("src/policy/x", "")
	write("src/trainer/x", "")
	write("src/scripts/fetch.py", "import os\nprint(os.environ['LIBTORCH'])\n")
	write("src/scripts/build_native.sh", "#!/bin/sh\n"+b.build+"\n")
	write("path/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not talk to the driver'\nexit 9\n")
	write("bin/agentfly", `#!/bin/sh
case $1 in
version) `+b.starts+` ;;
train)
  case "$*" in *bfloat16*) echo 'the loss is NaN | skipped'; exit 1 ;; *--ranks*) exit 0 ;; esac # the last leaves no summary
  mkdir -p "$4"
  echo '{"steps": 6, "seconds": 2, "reward": {"first": 0.25, "last": 0.5}, "mismatch_max": 1e-6}' >"$4/summary.json" ;;
esac
`)
	write("bin/cgo.test", `#!/bin/sh
for last; do :; done
case "$*" in
*GoldenScores*) printf -- '=== RUN   TestGoldenScores\n    x_test.go:3: worst difference: 1.5e-07\n--- PASS: TestGoldenScores (0.1s)\nPASS\n' ;;
*GoldenGradients*) printf -- '=== RUN   TestGoldenGradients\n    Error:  a | b\n--- FAIL: TestGoldenGradients (0.1s)\nFAIL\n'; exit 1 ;;
*CUDAAgrees*) printf -- '=== RUN   TestCUDAAgreesWithTheCPU\n    device_test.go:5: no CUDA device\n--- SKIP: TestCUDAAgreesWithTheCPU (0.0s)\nPASS\n' ;;
*BenchmarkTrainStep*fp32*) printf 'BenchmarkTrainStep/fp32-8 \t       1\t  123 ns/op\n' ;;
*BenchmarkTrainStep*bf16*) printf 'BenchmarkTrainStep/bf16-8 \t       1\t  123 ns/op\npanic: out of memory\n'; exit 2 ;;
*) printf 'testing: warning: no tests to run\nPASS\n' ;;
esac
`)
	write("bin/trainer.test", "#!/bin/sh\nprintf -- '--- PASS: TestOne (0.1s)\\n--- PASS: TestTwo (0.1s)\\nPASS\\n'\n")
	cmd := exec.Command("sh", filepath.Join(dir, "src/scripts/gpu_check.sh"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "path")+":"+os.Getenv("PATH"), "LIBTORCH="+filepath.Join(dir, "libtorch"), "QUICK=1", "OUT="+filepath.Join(dir, "out"))
	printed, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else {
		require.NoError(t, err, string(printed))
	}
	table, err := os.ReadFile(filepath.Join(dir, "out", "gpu.md"))
	require.NoError(t, err, string(printed))
	lines := strings.Split(strings.TrimSpace(string(table)), "\n")
	require.Equal(t, []string{"", "| check | result | detail |", "|---|---|---|"}, lines[1:4])
	rows = map[string][2]string{}
	for _, line := range lines[4:] {
		cells := strings.Split(line, "|")
		require.Len(t, cells, 5, "a row has three columns: %s", line)
		rows[strings.TrimSpace(cells[1])] = [2]string{strings.TrimSpace(cells[2]), strings.ReplaceAll(strings.TrimSpace(cells[3]), dir, "DIR")}
	}
	return lines[0], rows, status
}

// Whatever a part does, the table says so and the others still run.
func TestGPUCheckGoesOnAfterAFailure(t *testing.T) {
	head, rows, status := bundle{build: builds, starts: withoutGPU}.check(t)
	require.Equal(t, 1, status)
	require.Contains(t, head, "Commit 0123abc; nvidia-smi fails; torch 2.9.0; ")
	for name, want := range map[string][2]string{
		"the program starts":                              {"ok", "libtorch 2.9.0, 0 CUDA device(s): the tests run on cpu"},
		"goldens: scores":                                 {"ok", "1 test(s) on cpu, worst difference 1.5e-07"},
		"goldens: gradients":                              {"FAILED", "1 of 1 tests failed (exit status 1), see goldens__gradients.log: Error: a / b"},
		"shared prefixes":                                 {"FAILED", "no test of cgo is named Tree/Forest/Prefix"},
		"CUDA against the CPU kernels":                    {"skipped", "no CUDA device"},
		"the trainer":                                     {"ok", "2 test(s) on cpu"},
		"training job (examples/tiny.yaml)":               {"ok", "6 steps in 2 s, reward 0.250 to 0.500, engine and trainer 1.0e-06 apart"},
		"training job (examples/tiny.yaml), bf16":         {"FAILED", "the loss is NaN / skipped"},
		"training job, two ranks over NCCL":               {"skipped", "no CUDA device"},
		"training step, SmolLM2-135M, 2,090 tokens, fp32": {"ok", "cpu: 1 123 ns/op"},
		"training step, SmolLM2-135M, 2,090 tokens, bf16": {"FAILED", "exit status 2, see BenchmarkTrainStep_bf16.log: panic: out of memory"},
		"prefill and decode on the GPU":                   {"not run", "the local engine decodes on the CPU; use a vLLM server"},
	} {
		require.Equal(t, want, rows[name], name)
	}
	require.Equal(t, "FAILED", rows["training job, two ranks over Gloo"][0], "a job that leaves no summary did not work")
}

// What the rest needs is told with its reason, and ends the check.
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
			_, rows, status := c.check(t)
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
` + builds}.check(t)
	require.Equal(t, 1, status)
	require.Equal(t, [2]string{"FAILED", "nccl.h:1:2: fatal error: nv/target: No such file"}, rows["NCCL compiles"])
	require.Equal(t, "ok", rows["the C++ library compiles and links"][0])
	require.Equal(t, "ok", rows["goldens: scores"][0])
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

	require.Contains(t, build("AGENTFLY_BUILD_NCCL=0"), "a C++ file did not compile")
}
