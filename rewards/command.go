package rewards

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/procgroup"
	"github.com/agentfly/agentfly/internal/scripts"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareReward("command", newCommand, "what a program says of the trajectory, by its exit status or its output")

// command runs a program of the job in the job's folder, with this process's rights. It reads the trajectory as JSON on standard input.
type command struct {
	written []string // as the job has it, for errors
	args    []string // with whole paths of program and script
	folder  string
	output  bool // its score is what it prints; else its exit status
	timeout time.Duration
	shared  *resources.Resources
}

// Scores of command.
const (
	byExit   = "exit"
	byOutput = "output"
)

// mostOutput is how much of what a program prints is looked at, in bytes.
const mostOutput = 64 << 10

func newCommand(b *Builder, params map[string]any) (Reward, error) {
	p := struct {
		Command []string `json:"command"`
		Score   string   `json:"score"`
		Timeout float64  `json:"timeout"` // seconds
	}{Score: byExit, Timeout: 60}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	switch {
	case len(p.Command) == 0 || p.Command[0] == "":
		return nil, errors.New("the parameter command is missing; write command: [python3, grade.py]")
	case p.Score != byExit && p.Score != byOutput:
		return nil, fmt.Errorf("the parameter score is %q; allowed are %s (1 where the program ends with status 0, else 0) and %s (the number in its last line)", p.Score, byExit, byOutput)
	case !(p.Timeout >= 0.001 && p.Timeout <= 86400):
		return nil, fmt.Errorf("the parameter timeout is %v; allowed is a millisecond (0.001) to a day", p.Timeout)
	}
	c := command{p.Command, slices.Clone(p.Command), b.Resources.Resolve("."), p.Score == byOutput, time.Duration(p.Timeout * float64(time.Second)), b.Resources}
	var err error
	if c.args[0], err = b.Resources.Program(c.args[0]); err == nil {
		_, err = exec.LookPath(c.args[0])
	}
	if err != nil {
		return nil, fmt.Errorf("the program %s is not found: %w", p.Command[0], err)
	}
	for i, arg := range c.args {
		if i == 0 || strings.HasPrefix(arg, "-") || !scripts.Is(arg) {
			continue
		}
		whole, err := b.Resources.Whole(arg) // it may lie at home or in the working folder, and the program runs in the job's
		if err == nil {
			_, err = os.Stat(whole)
		}
		if err == nil {
			c.args[i] = whole
			break // what follows is the script's own
		}
		if !scripts.MayBeCode(c.args, i) {
			return nil, fmt.Errorf("the script is not found: %w", err)
		}
	}
	return c, nil
}

func (command) Name() string { return "command" }

// told is what the program reads.
type told struct {
	ID     string          `json:"id"`
	Task   trajectory.Task `json:"task"`
	Answer *string         `json:"answer"` // null: the trajectory has none
	Posted *float64        `json:"posted"` // what an agent that is a program of its own posted; null: nothing
	Turns  []toldTurn      `json:"turns"`
}

type toldTurn struct {
	Completion string     `json:"completion"`
	Calls      []toldCall `json:"calls"`
}

type toldCall struct {
	Name        string          `json:"name"`
	Arguments   json.RawMessage `json:"arguments"`
	Observation string          `json:"observation"`
	Failed      bool            `json:"failed"`
}

func tell(in Input) told {
	out := told{ID: in.Trajectory.ID, Task: in.Task, Posted: in.Posted, Turns: []toldTurn{}}
	if answer, at := in.Trajectory.FinalAnswer(); at >= 0 {
		out.Answer = &answer
	}
	for i := range in.Trajectory.Turns {
		turn := toldTurn{in.Trajectory.Turns[i].Completion, []toldCall{}}
		for _, r := range in.Trajectory.Turns[i].Results {
			arguments := r.Call.Arguments
			if !json.Valid(arguments) { // as the model wrote them
				arguments, _ = json.Marshal(string(arguments))
			}
			turn.Calls = append(turn.Calls, toldCall{r.Call.Name, arguments, r.Observation, r.Failed})
		}
		out.Turns = append(out.Turns, turn)
	}
	return out
}

// Score runs the program. It is an error that the program cannot be started, is killed, is not done in time, or, where its output counts, fails or prints no
// number.
func (c command) Score(ctx context.Context, in Input) (Score, error) {
	defer offTheClock(ctx)() // waiting depends on the others, and the run has a limit of its own
	leave, err := c.shared.Grade(ctx)
	if err != nil {
		return Score{}, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	exit, output, warnings, err := c.run(limited, tell(in))
	last := lastLine(output)
	switch {
	case ctx.Err() != nil:
		return Score{}, ctx.Err()
	case limited.Err() != nil:
		return Score{}, fmt.Errorf("%s is not done after %v (timeout)", c.written[0], c.timeout)
	case err != nil:
		return Score{}, fmt.Errorf("%s: %w", c.written[0], err)
	case exit != 0 && (c.output || exit >= notRun):
		return Score{}, fmt.Errorf("%s ended with status %d: %s", c.written[0], exit, wording.Clip(cmp.Or(lastLine(warnings), last), 200))
	case !c.output && exit == 0:
		return Score{Value: 1}, nil
	case !c.output:
		return Score{}, nil
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(last), 64)
	if err != nil {
		return Score{}, fmt.Errorf("the last line that %s printed is %q; with score: output it must be a number", c.written[0], wording.Clip(last, 200))
	}
	return Score{Value: value}, nil
}

// notRun is the first exit status by which shells say that a program was not run (126, 127) or was killed (128 and more): no verdict of a grader.
const notRun = 126

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

// run runs the program to its end, or until ctx ends, and kills all that it started. output and warnings are the last that it wrote on standard output
// and standard error, without the line's end.
func (c command) run(ctx context.Context, t told) (exit int, output, warnings string, err error) {
	body, err := json.Marshal(t)
	if err != nil {
		return 0, "", "", err
	}
	stdin, err := os.CreateTemp("", "agentfly-reward-")
	if err != nil {
		return 0, "", "", err
	}
	defer stdin.Close()
	_ = os.Remove(stdin.Name()) // the open file is enough, and a process that is killed leaves none
	if _, err = stdin.Write(body); err == nil {
		_, err = stdin.Seek(0, io.SeekStart)
	}
	if err != nil {
		return 0, "", "", err
	}
	var ours, theirs [2]*os.File // standard output, standard error
	for i := range ours {
		if ours[i], theirs[i], err = os.Pipe(); err != nil {
			return 0, "", "", err
		}
		defer ours[i].Close()
		defer theirs[i].Close() // a second time, mostly
	}
	p := exec.Command(c.args[0], c.args[1:]...)
	mark := procgroup.Mark()
	p.Dir, p.Stdin, p.Stdout, p.Stderr = c.folder, stdin, theirs[0], theirs[1]
	p.Env = append(os.Environ(), mark)
	g, err := procgroup.Start(p, syscall.SIGKILL)
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		return 0, "", "", err
	}
	var said [2]string
	var reading sync.WaitGroup
	for i, f := range ours {
		reading.Go(func() { said[i] = strings.TrimRight(string(tail(f, mostOutput)), " \t\r\n") })
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = g.Signal(syscall.SIGKILL)
		<-ended
		err = ctx.Err()
	}
	procgroup.CollectMarked(mark) // what left its group
	for _, f := range ours {
		_ = f.SetReadDeadline(time.Now().Add(time.Second)) // somebody else may still hold the pipe
	}
	reading.Wait()
	failed := (*exec.ExitError)(nil)
	if errors.As(err, &failed) && failed.Exited() {
		return failed.ExitCode(), said[0], said[1], nil
	}
	return 0, said[0], said[1], err
}

// tail reads to the end, and returns the last bytes, at most so many.
func tail(r io.Reader, most int) (kept []byte) {
	buf := make([]byte, 8<<10)
	for {
		n, err := r.Read(buf)
		kept = append(kept, buf[:n]...)
		kept = kept[max(0, len(kept)-most):]
		if err != nil {
			return kept
		}
	}
}
