package cgo

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// compiled returns what g++ makes of a C++ file, as the library's build does; more says into what.
func compiled(t *testing.T, source, name string, more ...string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the instruction is x86's")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("g++ is not on this machine")
	}
	out := filepath.Join(t.TempDir(), name)
	text, err := exec.Command(compiler, append([]string{"-std=c++20", "-O2", "-Wall", "-Werror", "-Wno-psabi", "-fno-math-errno", "-fno-trapping-math", source, "-o", out}, more...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// The tile of VDPBF16PS has the bits of the other tiles: the same source compiled against the instruction's definition in Intel's
// manual, over random shapes, odd inner dimensions, panels that are not full, 1 to 40 rows and several pieces. No processor with
// the instruction has run it.
func TestPairsOfBFloat16(t *testing.T) {
	program := compiled(t, "testdata/pairs/pairs.cc", "pairs")
	run := func(args ...string) (out, errs string) {
		command := exec.Command(program, args...)
		var stdout, stderr bytes.Buffer
		command.Stdout, command.Stderr = &stdout, &stderr
		require.NoError(t, command.Run())
		t.Logf("%v %s%s", args, &stdout, &stderr)
		return stdout.String(), stderr.String()
	}
	out, errs := run()
	require.Regexp(t, `^pairs 1, cases 480, elements \d{5,}, different 0, from plain 0, of subnormal products [1-9]\d*\n$`, out)
	require.Empty(t, errs)

	// A sum in the other order is right but for rounding, which the comparison sees and the check at the first use lets pass.
	out, errs = run("first")
	require.Regexp(t, `^pairs 1, .* different [1-9]\d{3,}, `, out)
	require.Empty(t, errs)

	// A wrong product is noticed at the first use: one line, and the other tile computes.
	out, errs = run("crossed")
	require.Regexp(t, `^pairs 0, .* different 0, from plain 0, of subnormal products 0\n$`, out)
	require.Equal(t, "agentfly: products of bfloat16 by this processor's VDPBF16PS are wrong; AVX-512 multiplies widened numbers instead\n", errs)
}

// The library's own tile is the instruction.
func TestPairsAreTheInstruction(t *testing.T) {
	tool, err := exec.LookPath("objdump")
	if err != nil {
		t.Skip("objdump is not on this machine")
	}
	object := compiled(t, "src/panel.cc", "panel.o", "-c")
	text, err := exec.Command(tool, "-d", "--no-show-raw-insn", object).Output()
	require.NoError(t, err)
	require.GreaterOrEqual(t, bytes.Count(text, []byte("vdpbf16ps")), 14*15/2, "sums of tiles of 1 to 14 rows")
}
