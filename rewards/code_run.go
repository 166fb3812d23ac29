package rewards

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/sandbox"
)

// The two programs of runTexts; code_values.py stands at the head of both.
var (
	//go:embed code_values.py
	codeValues string
	//go:embed code_tests.py
	testsProgram string
	//go:embed code_answers.py
	answersProgram string
)

// codeRequest is the first line that the process of the tests reads.
type codeRequest struct {
	Setup string   `json:"setup"`
	Code  string   `json:"code"`
	Entry string   `json:"entry"`
	Tests []string `json:"tests"`
}

// graded counts tests of Python text.
type graded struct {
	passed, refused, trusted int // trusted: passed with a comparison that the code itself made
	tampered                 bool
}

// maxCodeLine is the longest message between the two processes, in bytes: arguments and results are in it.
const maxCodeLine = 32 << 20

// runTexts runs tests of Python text. Two programs run, each in a sandbox of its own, with one working folder:
//
//	code_tests.py (tests, expectations, comparisons) ⇄ lines of JSON, carried here ⇄ code_answers.py (the code)
//
// The code only answers calls: it has nothing in its reach that says "passed", and never sees a test. Both are bound by the processor's
// time; the wall clock is there for code that sleeps.
func (c codeTests) runTexts(ctx context.Context, request codeRequest) (out graded, err error) {
	first, err := json.Marshal(request)
	if err != nil {
		return out, err
	}
	folder, err := sandbox.TempFolder("grade")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	// The programs' folder lies within: sandboxes of root give a workspace to the user nobody, and what another owns nobody cleans up.
	work := filepath.Join(folder.Path(), "work")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Chmod(folder.Path(), 0o711)); err != nil {
		return out, fmt.Errorf("rewards: the folder of a grading: %w", err)
	}
	limits := c.limits()
	own, cancel := context.WithTimeout(ctx, limits.Wall)
	defer cancel()
	var both [2]sandbox.Process
	for i, program := range []string{testsProgram, answersProgram} {
		both[i], err = c.box.Start(own, sandbox.Program{Args: []string{"python3", "-I", "-c", codeValues + "\n" + program}, Workspace: work, Limits: limits})
		if err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, both[i].Kill()) }()
	}
	out, err = carry(both[0], both[1], append(first, '\n'))
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case errors.Is(err, errNotStarted) && own.Err() != nil:
		return out, fmt.Errorf("%w in %s: the machine has too much to do; allow more with the parameter wall", err, limits.Wall.Round(time.Millisecond))
	}
	return out, err
}

// taskFault is what is wrong with the task's own texts, so that they say nothing of the code: rewards would teach anything, or nothing.
type taskFault struct {
	setup bool // in the text that runs before the code, not in the tests
	what  string
}

func (e taskFault) Error() string { return e.what }

// testFault is a fault of the test that a message of the tests' process begins with, counted from 0.
func testFault(message, does string) error {
	number, why, _ := strings.Cut(message, " ")
	i, err := strconv.Atoi(number)
	return errors.Join(taskFault{what: fmt.Sprintf("test %d %s: %s", i+1, does, why)}, err)
}

var errNotStarted = errors.New("python3 did not start in the sandbox")

// carry takes messages from one process to the other until the tests are done or a process has ended. Where one of them ended blind, the tests say
// nothing of the code, and there is an error.
func carry(tests, code sandbox.Process, first []byte) (out graded, err error) {
	var all sync.WaitGroup
	defer all.Wait() // ends with the processes
	defer func() { err = errors.Join(err, tests.Kill(), code.Kill()) }()
	errs := [2]*wording.Tail{wording.NewTail(4096), wording.NewTail(4096)}
	for i, p := range []sandbox.Process{tests, code} {
		all.Go(func() { _, _ = io.Copy(errs[i], p.Stderr()) })
	}
	answers := bufio.NewReaderSize(code.Stdout(), 1<<16)
	results := bufio.NewReaderSize(tests.Stdout(), 1<<16)
	all.Go(func() { _, _ = tests.Stdin().Write(first) }) // nothing else is written before it is read
	for i, r := range []*bufio.Reader{results, answers} {
		if line, err := codeLine(r); err != nil || string(line) != "ready\n" {
			return out, fmt.Errorf("%w: %s", errNotStarted, reasonOf(errs[i]))
		}
	}
	all.Go(func() {
		for {
			line, err := codeLine(answers)
			if err == nil {
				_, err = tests.Stdin().Write(line)
			}
			if err != nil { // the code's process ended, or wrote beyond all bounds
				_ = tests.Stdin().Close()
				return
			}
		}
	})
	passed := map[string]bool{}
	refused := map[string]bool{}
	trusted := map[string]bool{}
	for {
		line, err := codeLine(results)
		if err != nil {
			break // the tests ended their own process, or ran out of time: those that passed have
		}
		word, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch word {
		case "P":
			passed[rest] = true
		case "R":
			refused[rest] = true
		case "W":
			trusted[rest] = true
		case "N":
			return out, testFault(rest, "passes with any code that runs")
		case "F":
			return out, testFault(rest, "fails with any code")
		case "S":
			return out, taskFault{setup: true, what: "it fails before any code: " + rest}
		case "T":
			out.tampered = true
		case "C":
			_, _ = code.Stdin().Write(line[len("C "):]) // where it has ended, the tests learn it from the end of its answers
		}
		if word == "done" {
			break
		}
	}
	if err := errors.Join(tests.Kill(), code.Kill()); err != nil {
		return out, err
	}
	for _, p := range []sandbox.Process{tests, code} {
		if exit := (*sandbox.ExitError)(nil); errors.As(p.Wait(), &exit) && exit.Blind() {
			return out, exit
		}
	}
	out.passed, out.refused, out.trusted = len(passed), len(refused), len(trusted)
	return out, nil
}

// codeLine is the next line with its end.
func codeLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxCodeLine:
			return nil, bufio.ErrTooLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// reasonOf is the last line of what a process said on standard error.
func reasonOf(said *wording.Tail) string {
	if line := lastLine(strings.TrimSpace(said.String())); line != "" {
		return line
	}
	return "it wrote nothing on standard error"
}
