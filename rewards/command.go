package rewards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/procgroup"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareReward("command", newCommand, "what a program says of the trajectory, by its exit status or its output")

// command runs a program of the job in the job's folder, with this process's rights. It reads the trajectory as JSON on standard input.
type command struct {
	args    []string
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
	case !(p.Timeout > 0 && p.Timeout <= 86400):
		return nil, fmt.Errorf("the parameter timeout is %v; allowed is more than 0 seconds, and a day at most", p.Timeout)
	}
	c := command{p.Command, b.Resources.Resolve("."), p.Score == byOutput, time.Duration(p.Timeout * float64(time.Second)), b.Resources}
	probe := exec.Command(c.args[0])
	probe.Dir = c.folder
	if err := probe.Err; err != nil {
		return nil, fmt.Errorf("the program %s is not found: %w", c.args[0], err)
	}
	if strings.Contains(c.args[0], "/") {
		if _, err := os.Stat(b.Resources.Resolve(c.args[0])); err != nil {
			return nil, fmt.Errorf("the program is not found: %w", err)
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
	leave, err := c.shared.Grade(ctx)
	if err != nil {
		return Score{}, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	exit, output, err := c.run(limited, tell(in))
	last := output[strings.LastIndexByte(output, '\n')+1:]
	switch {
	case ctx.Err() != nil:
		return Score{}, ctx.Err()
	case limited.Err() != nil:
		return Score{}, fmt.Errorf("%s is not done after %v (timeout)", c.args[0], c.timeout)
	case err != nil:
		return Score{}, fmt.Errorf("%s: %w", c.args[0], err)
	case !c.output && exit == 0:
		return Score{Value: 1}, nil
	case !c.output:
		return Score{}, nil
	case exit != 0:
		return Score{}, fmt.Errorf("%s ended with status %d: %s", c.args[0], exit, wording.Clip(last, 200))
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(last), 64)
	if err != nil {
		return Score{}, fmt.Errorf("the last line that %s printed is %q; with score: output it must be a number", c.args[0], wording.Clip(last, 200))
	}
	return Score{Value: value}, nil
}

// run runs the program to its end, or until ctx ends, and kills all that it started. output is the last that it printed, without the line's end.
func (c command) run(ctx context.Context, t told) (exit int, output string, err error) {
	body, err := json.Marshal(t)
	if err != nil {
		return 0, "", err
	}
	stdin, err := os.CreateTemp("", "agentfly-reward-")
	if err != nil {
		return 0, "", err
	}
	defer stdin.Close()
	defer os.Remove(stdin.Name())
	if _, err = stdin.Write(body); err == nil {
		_, err = stdin.Seek(0, io.SeekStart)
	}
	if err != nil {
		return 0, "", err
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, "", err
	}
	defer ours.Close()
	p := exec.Command(c.args[0], c.args[1:]...)
	mark := procgroup.Mark()
	p.Dir, p.Stdin, p.Stdout, p.Stderr = c.folder, stdin, theirs, theirs
	p.Env = append(os.Environ(), mark)
	g, err := procgroup.Start(p, syscall.SIGKILL)
	_ = theirs.Close()
	if err != nil {
		return 0, "", err
	}
	read := make(chan []byte, 1)
	go func() { read <- tail(ours, mostOutput) }()
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = g.Signal(syscall.SIGKILL)
		<-ended
		err = ctx.Err()
	}
	procgroup.CollectMarked(mark)                         // what left its group
	_ = ours.SetReadDeadline(time.Now().Add(time.Second)) // somebody else may still hold the pipe
	output = strings.TrimRight(string(<-read), " \t\r\n")
	failed := (*exec.ExitError)(nil)
	if errors.As(err, &failed) && failed.Exited() {
		return failed.ExitCode(), output, nil
	}
	return 0, output, err
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
