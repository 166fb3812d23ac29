package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

// rewardCommands look at rewards and call them.
type rewardCommands struct{ *env }

func (c rewardCommands) command() *cli.Command {
	file := fileFlags()
	return &cli.Command{Name: "rewards", Usage: "look at rewards, of the catalog or of a Python file, and call one", Subcommands: []*cli.Command{
		{Name: "list", Usage: "list the rewards that job files can name, or what a file decorates", ArgsUsage: "[FILE]", Flags: file, Action: c.list},
		{
			Name: "call", Usage: `score an answer: '{"final_response": "42", "answer": "42"}'`, ArgsUsage: "[FILE] NAME '{…}'", Action: c.call,
			Description: "The object has final_response, what the agent answered in the end, and the fields of the task. A reward that looks at\n" +
				`calls gets them as "calls": [{"name": "calculator", "arguments": {…}, "observation": "42"}].`,
			Flags: append(file, &cli.StringSliceFlag{Name: "param", Usage: "a parameter of the reward: `KEY=VALUE`, the value as in a job file; a.b=1 is within a; may be repeated"}),
		},
	}}
}

func (c rewardCommands) list(x *cli.Context) (err error) {
	line := func(name, description string) {
		if err == nil {
			_, err = fmt.Fprintf(c.text, "%-24s %s\n", name, firstLine(description))
		}
	}
	if x.NArg() == 0 {
		if err := ofFiles(x); err != nil {
			return err
		}
		for _, name := range c.registries.Rewards.Names() {
			line(name, c.registries.Rewards.Description(name))
		}
		return err
	}
	s, err := toolCommands(c).openOneFile(x)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.resources.Close()) }()
	n := 0
	for _, f := range s.module.Functions() {
		if f.Kind == "reward" {
			n++
			line(f.Name, f.Description)
		}
	}
	if n == 0 {
		return usagef("%s decorates no reward: write @reward() above a function, and from agentfly import reward", x.Args().First())
	}
	return err
}

func (c rewardCommands) call(x *cli.Context) (err error) {
	args := x.Args().Slice()
	if len(args) != 2 && (len(args) != 3 || !isFile(args[0])) {
		return usagef("agentfly rewards call takes a reward's name and a JSON object of final_response, calls and the fields of the task, and before them the Python file if it has one")
	}
	in, err := scored(args[len(args)-1])
	if err != nil {
		return err
	}
	if len(args) == 3 && len(x.StringSlice("param")) > 0 {
		return usagef("--param is of the catalog's rewards; a function of a file has no parameters")
	}
	if len(args) == 2 {
		if err := ofFiles(x); err != nil {
			return err
		}
	}
	params := map[string]any{}
	if err := setParams(params, x.StringSlice("param")); err != nil {
		return err
	}
	s, name := toolCommands(c).newSet(), args[len(args)-2]
	defer func() { err = errors.Join(err, s.resources.Close()) }()
	var made rewards.Reward
	if len(args) == 3 {
		if err = toolCommands(c).openFile(x, args[0], s); err == nil {
			made, err = rewards.PythonReward(s.module, name)
		}
	} else {
		made, err = c.registries.Rewards.Builder(x.Context, s.resources).Make(name, params)
	}
	if err == nil {
		err = s.resources.Begin(x.Context)
	}
	if err != nil {
		return usagef("%v", err)
	}
	score, err := rewards.Run(x.Context, rewardTimeout, made, in)
	if err != nil {
		return errors.Join(c.print(map[string]string{"error": err.Error()}), errors.New("rewards: the call failed"))
	}
	return c.print(struct {
		Reward float64            `json:"reward"`
		Parts  map[string]float64 `json:"parts,omitempty"`
	}{score.Value, score.Parts})
}

// rewardTimeout is that of a call on the command line: rollout.reward_timeout of a job that does not say.
const rewardTimeout = time.Minute

// scored is the trajectory that a JSON object describes: one turn with its calls and its answer, of the task with the other fields.
func scored(text string) (in rewards.Input, err error) {
	fields := map[string]any{}
	var own struct {
		FinalResponse any             `json:"final_response"`
		Calls         json.RawMessage `json:"calls"`
	}
	for _, into := range []any{&own, &fields} {
		if err := decodeWhole(text, into); err != nil {
			return in, usagef("the arguments %q are not a JSON object; %s", text, anObject)
		}
	}
	delete(fields, "final_response")
	delete(fields, "calls")
	turn := trajectory.Turn{FinishReason: trajectory.FinishStop}
	if own.FinalResponse != nil {
		said, ok := own.FinalResponse.(string)
		if !ok {
			return in, usagef(`final_response is no text; write {"final_response": "132"}`)
		}
		turn.Completion, turn.FinalAnswer, turn.AnsweredThisTurn = said, said, true
	}
	var calls []struct {
		Name        string          `json:"name"`
		Arguments   json.RawMessage `json:"arguments"`
		Observation string          `json:"observation"`
		Failed      bool            `json:"failed"`
	}
	if own.Calls != nil {
		if err := strictly(own.Calls, &calls); err != nil {
			return in, usagef("calls: %v", err)
		}
	}
	for _, call := range calls {
		r := trajectory.ToolResult{Call: trajectory.ToolCall{Name: call.Name, Arguments: call.Arguments}, Observation: call.Observation}
		if call.Failed {
			r.Fail(trajectory.CauseRaised, call.Observation)
		}
		turn.Results = append(turn.Results, r)
	}
	t := &trajectory.Trajectory{ID: "command-line", TaskID: "command-line", Turns: []trajectory.Turn{turn}, StopReason: trajectory.StopAnswer}
	return rewards.Input{Task: trajectory.Task{ID: "command-line", Fields: fields}, Trajectory: t}, nil
}

// decodeWhole reads a text that is one JSON value and nothing else. Numbers stay as they are written, as in the data of a job.
func decodeWhole(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind it")
	}
	return nil
}

func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}
