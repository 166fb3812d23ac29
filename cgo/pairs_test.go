package cgo

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
)

// emulatedPairs has g++ compile the definitions of VDPBF16PS and of AMX's TDPBF16PS in Intel's manual in place of the instructions.
const emulatedPairs = `-DAF_EMULATED_PAIRS="../testdata/pairs/emulated.h"`

// compiled returns what g++ makes of a C++ file, as the library's build does; more says into what. With NATIVE=asan it looks after its memory.
func compiled(t *testing.T, source, name string, more ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the instruction is x86's")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("g++ is not on this machine")
	}
	if os.Getenv("NATIVE") == "asan" {
		more = append(more, "-g", "-fsanitize=address,undefined", "-fno-sanitize=vptr", "-D_GLIBCXX_SANITIZE_VECTOR")
	}
	out := filepath.Join(t.TempDir(), name)
	text, err := exec.Command(compiler, append([]string{"-std=c++20", "-O2", "-Wall", "-Werror", "-Wno-psabi", "-fno-math-errno", "-fno-trapping-math", source, "-o", out}, more...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// ran returns what a program of testdata/pairs writes.
func ran(t *testing.T, program string, args ...string) (out, errs string) {
	t.Helper()
	command := exec.Command(program, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	require.NoError(t, command.Run())
	t.Logf("%v %s%s", args, &stdout, &stderr)
	return stdout.String(), stderr.String()
}

// The tile of VDPBF16PS has the bits of the other tiles: the same source compiled against the instruction's definition in Intel's
// manual, over random shapes, odd inner dimensions, panels that are not full, 1 to 40 rows, 1 to 10 panels and several pieces; so have the chains
// of attention, whose panels lie in pieces and which go on from one call to the next; rows and results that lie in bfloat16 have the numbers of
// those that lie in float32. Where the processor has the instruction it does the same.
func TestPairsOfBFloat16(t *testing.T) {
	t.Parallel() // it has g++ compile
	const same = `, cases 486, elements \d{5,}, different 0, from plain 0, in chains 0, of halves 0, of subnormal products `
	emulated := compiled(t, "testdata/pairs/pairs.cc", "pairs", emulatedPairs, "src/kernels.cc")
	out, errs := ran(t, emulated)
	require.Regexp(t, `^pairs 1`+same+`[1-9]\d*\n$`, out)
	require.Empty(t, errs)
	if cpu.X86.HasAVX512BF16 {
		out, errs = ran(t, compiled(t, "testdata/pairs/pairs.cc", "own", "src/kernels.cc"))
		require.Regexp(t, `^pairs (1`+same+`[1-9]\d*|0`+same+`0)\n$`, out) // 0 with AGENTFLY_CPU
		require.Empty(t, errs)
	}

	// A sum in the other order is right but for rounding, which the comparison sees and the check at the first use lets pass.
	out, errs = ran(t, emulated, "first")
	require.Regexp(t, `^pairs 1, .* different [1-9]\d{3,}, .* in chains [1-9]\d{3,}, `, out)
	require.Empty(t, errs)

	// A wrong product is noticed at the first use: one line, and the other tile computes.
	out, errs = ran(t, emulated, "crossed")
	require.Regexp(t, `^pairs 0, .* different 0, from plain 0, in chains 0, of halves 0, of subnormal products 0\n$`, out)
	require.Equal(t, "agentfly: products of bfloat16 by this processor's VDPBF16PS are wrong; AVX-512 multiplies widened numbers instead\n", errs)
}

// The products by AMX have the bits of its instruction's definition in Intel's manual, element by element: inner dimensions of less than a
// step of 32, of some steps, of several pieces, 1 to 65 rows and a block's edge, panels that are not full and threads that begin at any of them;
// rows and results that lie in bfloat16 have the numbers of those that lie in float32, and subnormal products are zero. Where the processor has
// AMX it does the same.
func TestTilesOfAMX(t *testing.T) {
	t.Parallel() // it has g++ compile
	const same = `, cases 148, elements 217050, different 0, of halves 0, untouched 7957\n$`
	emulated := compiled(t, "testdata/pairs/tiles.cc", "tiles", emulatedPairs, "src/kernels.cc")
	out, errs := ran(t, emulated)
	require.Regexp(t, `^tiles 1`+same, out)
	require.Empty(t, errs)
	if cpu.X86.HasAMXBF16 {
		out, errs = ran(t, compiled(t, "testdata/pairs/tiles.cc", "own", "src/kernels.cc"))
		require.Regexp(t, `^tiles (1`+same+`|0, )`, out) // 0 with AGENTFLY_CPU
		require.Empty(t, errs)
	}

	// A wrong product is noticed at the first use: one line, and the other instruction computes, whose sums are others.
	out, errs = ran(t, emulated, "crossed")
	require.Regexp(t, `^tiles 0, .* different [1-9]\d{3,}, `, out)
	require.Equal(t, "agentfly: products of bfloat16 by this processor's TDPBF16PS are wrong; VDPBF16PS multiplies instead\n", errs)
}

// In bfloat16 the engine's attention over a paged cache, of one token at a time and of up to twelve together, has the bits of the trainer's
// over blocks of tokens: for a head of 2 to 128 elements, 1 to 9 queries, blocks of 8 to 24 tokens, drawn lengths up to 70 and one of 900, in a cache and a scratch that held NaN before; and
// nearly the values and gradients of float64; the denominator is of the rounded probabilities. By the instruction emulated, by the
// processor's other tiles and, where the processor has it, by the instruction.
func TestAttentionOfPairs(t *testing.T) {
	t.Parallel() // it has g++ compile
	build := func(more ...string) string {
		return compiled(t, "testdata/pairs/attend.cc", "attend", append(more, "src/attend.cc", "src/kernels.cc")...)
	}
	run := func(pairs, program string, args ...string) {
		out, err := exec.Command(program, args...).Output()
		require.NoError(t, err)
		t.Logf("%s", out)
		require.Regexp(t, "^pairs "+pairs+`, rows \d{5,}, together 0, different 0, wrong 0, lse wrong 0, of rounded 1, gradients 0\.0[01]\d\d apart\n$`, string(out))
	}
	emulated := build(emulatedPairs)
	run("1", emulated)
	run("0", emulated, "crossed")
	if cpu.X86.HasAVX512BF16 {
		run("[01]", build()) // 0 with AGENTFLY_CPU
	}
}

// The library's own tiles are the instructions.
func TestPairsAreTheInstruction(t *testing.T) {
	t.Parallel() // it has g++ compile
	tool, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("objdump is not on this machine")
	}
	object := compiled(t, "src/panel.cc", "panel.o", "-c")
	text, err := exec.Command(tool, "-d", "--no-show-raw-insn", object).Output()
	require.NoError(t, err)
	tiles, chains, products := 0, 0, 0
	for function := range bytes.SplitSeq(text, []byte("\n\n")) {
		name, body, _ := bytes.Cut(function, []byte(":\n"))
		products += bytes.Count(body, []byte("tdpbf16ps"))
		if n := bytes.Count(body, []byte("vdpbf16ps")); bytes.Contains(name, []byte("chain")) {
			chains += n
		} else {
			tiles += n
		}
	}
	const sums = (1+2+3+4+5+6)*(1+2+3+4) + (7+8)*(1+2+3) // of 1 to 6 rows by 1 to 4 panels, 7 and 8 rows by 1 to 3
	require.GreaterOrEqual(t, tiles, sums)
	require.GreaterOrEqual(t, chains, sums)
	require.GreaterOrEqual(t, products, 1+2+2+4) // of one or two tiles of rows by one or two panels
}
