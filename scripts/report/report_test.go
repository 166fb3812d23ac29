// Package report holds the test of what `make test` prints: scripts/results.sh over the output of `go test -v`.
package report

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is one whose tests fail in every way in which tests fail. TestThird prints alone, since go test cannot tell which of two tests
// that run side by side has printed.
var module = map[string]string{
	"go.mod": "module example.org/m\n\ngo 1.26\n",
	"a/a_test.go": `package a
import ("fmt"; "testing")
func TestFirst(t *testing.T) {
	for i := range 400 { t.Logf("line %d of the first", i) }
	t.Fatal("the first failed")
}
func TestSecond(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Parallel(); t.Log("of the good one") })
	t.Run("bad", func(t *testing.T) { t.Parallel(); t.Error("the second failed") })
}
func TestThird(t *testing.T) { fmt.Println("printed by the third"); t.Fail() }
func TestGood(t *testing.T) { t.Log("nobody asked") }
func TestSkipped(t *testing.T) { t.Skip("bwrap is not installed: apt-get install bubblewrap") }
func TestSkippedToo(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Skip("bwrap is not installed: apt-get install bubblewrap") }) }
`,
	"b/b_test.go": "package b\nimport \"testing\"\nfunc TestPanics(t *testing.T) { t.Log(\"before\"); panic(\"the third failed\") }\n",
	"c/c_test.go": "package c\nimport \"testing\"\nfunc TestBuild(t *testing.T) { undefined() }\n",
	"d/d_test.go": "package d\nimport (\"os\"; \"testing\"; \"fmt\")\nfunc TestMain(m *testing.M) { m.Run(); fmt.Println(\"found a goroutine\"); os.Exit(1) }\nfunc TestFine(t *testing.T) {}\n",
	"e/e_test.go": "package e\nimport \"testing\"\nfunc TestFine(t *testing.T) { t.Log(\"of a package that is fine\") }\n",
}

// The failures stand first, each whole and none beside them; the skips are counted by reason.
func TestFailuresComeFirstAndWhole(t *testing.T) {
	dir := t.TempDir()
	for name, text := range module {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	test := exec.Command("go", "test", "-vet=off", "-v", "./...")
	test.Dir = dir
	out, err := test.CombinedOutput()
	require.Error(t, err)
	log := filepath.Join(dir, "log")
	require.NoError(t, os.WriteFile(log, out, 0o600))
	report, err := exec.Command("../results.sh", log).CombinedOutput()
	require.NoError(t, err, "%s", report)
	text := string(report)
	require.True(t, strings.HasPrefix(text, "== failures, each whole\n"), text)
	failures, rest, found := strings.Cut(text, "== packages\n")
	require.True(t, found)
	for _, want := range []string{
		"--- FAIL: TestFirst (example.org/m/a)\n", "line 0 of the first\n", "line 399 of the first\n", "the first failed\n",
		"--- FAIL: TestSecond/bad (example.org/m/a)\n", "the second failed\n",
		"--- FAIL: TestThird (example.org/m/a)\nprinted by the third\n",
		"--- FAIL: TestPanics (example.org/m/b)\n", "before\n", "panic: the third failed", "b_test.go:3",
		"undefined: undefined\n", "--- FAIL: example.org/m/c does not build\n",
		"--- FAIL: example.org/m/d, outside its tests\nfound a goroutine\n",
	} {
		require.Contains(t, failures, want)
	}
	for _, other := range []string{"nobody asked", "of the good one", "fine (", "bwrap", "TestSecond (", "=== "} {
		require.NotContains(t, failures, other)
	}
	require.Contains(t, rest, "ok  \texample.org/m/e")
	require.Contains(t, rest, "== skipped, by reason\n   2  bwrap is not installed: apt-get install bubblewrap\n")
	require.Contains(t, rest, "5 passed, 5 failed, 2 skipped\n")
}

// Where all passed there is no word of failures.
func TestNoFailures(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, []byte("=== RUN   TestA\n    a_test.go:1: error: what a passing test wrote\n--- PASS: TestA (0.00s)\nPASS\nok  \tm\t0.1s\n"), 0o600))
	report, err := exec.Command("../results.sh", log).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "== packages\nok  \tm\t0.1s\n== skipped, with the reason\nnone\n1 passed, 0 failed, 0 skipped\n", string(report))
}

// A test that ended without a word of go test, as where the kernel killed its process, is a failure; what a test prints is not.
func TestReportOfOddOutputs(t *testing.T) {
	hash := "=== RUN   TestA\n# HELP x a metric\n# TYPE x counter\nx 1\n--- PASS: TestA (0.00s)\n"
	for name, c := range map[string]struct{ log, failures string }{
		"a hash in a test that passes": {hash + "PASS\nok  \tm\t0.1s\n", ""},
		"a hash outside the tests":     {"# HELP x a metric\nx 1\n=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\nok  \tm\t0.1s\n", ""},
		"a hash in a test that fails":  {strings.ReplaceAll(hash, "PASS", "FAIL") + "FAIL\nFAIL\tm\t0.1s\nFAIL\n", "--- FAIL: TestA (m)\n# HELP x a metric\n# TYPE x counter\nx 1\n"},
		"a build that failed": {
			"# m [m.test]\n./a_test.go:3:1: undefined: undefined\nok  \to\t0.1s\nFAIL\tm [build failed]\nFAIL\n",
			"# m [m.test]\n./a_test.go:3:1: undefined: undefined\n--- FAIL: m does not build\n",
		},
		"killed":           {"=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    a_test.go:1: said\n", "--- FAIL: TestB (a package that did not end)\n    a_test.go:1: said\n"},
		"killed and named": {"=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\nsaid\nsignal: killed\nFAIL\tm\t0.1s\nFAIL\n", "--- FAIL: TestB (m)\nsaid\nsignal: killed\n"},
		"exited":           {"=== RUN   TestB\nFAIL\tm\t0.1s\nFAIL\n", "--- FAIL: TestB (m)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command("awk", "-f", "../failed.awk")
			command.Stdin = strings.NewReader(c.log)
			out, err := command.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, c.failures, string(out))
		})
	}
}

// The check of a machine names every program that the tests of the sandbox need.
func TestCheckOfTheMachine(t *testing.T) {
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	command := exec.Command(sh, "../check_machine.sh", "test")
	command.Env = []string{"PATH=" + t.TempDir()}
	out, err := command.CombinedOutput()
	require.Error(t, err)
	for program, pkg := range map[string]string{"go": "golang", "g++": "g++", "python3": "python3", "bwrap": "bubblewrap", "prlimit": "util-linux", "setpriv": "util-linux", "mount": "mount"} {
		require.Contains(t, string(out), "make: "+program+" is missing")
		require.Regexp(t, `make: `+regexp.QuoteMeta(program)+` is missing.*apt-get install `+regexp.QuoteMeta(pkg)+"\n", string(out))
	}
}
