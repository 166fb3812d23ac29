package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trajectory"
)

// command runs a command line off a terminal.
func command(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	p := Program{In: strings.NewReader(""), Out: &o, ErrOut: &e}
	err = p.Run(context.Background(), append([]string{"agentfly"}, args...))
	return o.String(), e.String(), err
}

// calling is a turn with a call.
func calling(tool, said, observed string, cause trajectory.Cause) trajectory.Turn {
	r := trajectory.ToolResult{Call: trajectory.ToolCall{Name: tool, Arguments: json.RawMessage(`{"q":"Paris"}`)}, Observation: observed}
	if cause != "" {
		r.Fail(cause, observed)
	}
	return trajectory.Turn{Completion: said, Results: []trajectory.ToolResult{r}}
}

// twoRuns are one that runs and one that ended.
func twoRuns(t *testing.T) (root string) {
	root = t.TempDir()
	host, _ := os.Hostname()
	at := time.Now()
	overviewtest.Run{
		Steps:       overviewtest.Steps(0.1, 0.2, 0.4),
		Evaluations: []overviewtest.Evaluation{{Name: "before", Rewards: map[string]float64{"a": 0, "b": 1, "c": 0}}, {Name: "step-2", Step: 2, Rewards: map[string]float64{"a": 1, "b": 1, "c": 0}}},
		Now: &runfolder.Now{
			Host: host, PID: os.Getpid(), Written: at, Since: at.Add(-3 * time.Second), Doing: "the update of step 4",
			Groups: &schedule.Groups{Sampling: 3, Ended: 2, Training: 4, Batch: 4, Most: 12, Behind: 1, Staleness: 2},
			Waits:  []runfolder.Wait{{Part: "tool search", Count: 2, Oldest: "train-3-0-1" + escapes, Seconds: 4}},
		},
		Train: []overviewtest.Sampled{
			{Step: 0, Index: 0, Reward: 0.5, Turns: []trajectory.Turn{calling("search", "I look for the capital", "It is Paris", "")}, Stop: trajectory.StopAnswer},
			{Step: 2, Index: 0, Reward: 1, Turns: []trajectory.Turn{calling("search", "again"+escapes, "Error: gone", trajectory.CauseRaised), {Completion: "so"}}, Stop: trajectory.StopMaxTurns},
			{Step: 2, Index: 1, Reward: -1, Stop: trajectory.StopError, Err: "the world has ended" + escapes},
		},
	}.Write(t, filepath.Join(root, "going"))
	overviewtest.Run{
		Job: overviewtest.Job("done", 2), Steps: overviewtest.Steps(0.3, math.Inf(1)), Evaluations: []overviewtest.Evaluation{{Name: "after", Step: 2, Rewards: map[string]float64{"a": 0, "b": 1, "c": 0}}},
		Now: &runfolder.Now{Host: host, PID: 1, Written: at, Ended: runfolder.EndedFailed, Error: "no memory" + escapes},
	}.Write(t, filepath.Join(root, "done"))
	return root
}

func TestRunsAreListed(t *testing.T) {
	root := twoRuns(t)
	out, errs, err := command(t, "runs", root)
	require.NoError(t, err)
	require.Empty(t, errs)
	safe(t, out)
	lines := strings.Split(out, "\n")
	require.Regexp(t, `^run    state    step  reward  held-out +best +changed  algorithm      model$`, lines[0])
	require.Regexp(t, `^done   failed +2/2 +- +0\.333  0\.333 @2 .* grpo/ppo_clip  tiny$`, lines[1])
	require.Regexp(t, `^going  running +3/10 +0\.400 +0\.667  0\.667 @2 +(now|\d+s ago)  grpo/ppo_clip  tiny$`, lines[2])
	require.Contains(t, lines[3], `done: no memory\x1b[2J`)

	t.Setenv("COLUMNS", "40")
	out, _, err = command(t, "runs", "--json", root)
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(out) {
		var one struct {
			Name, State, Error string
			Steps, Planned     int
		}
		require.NoError(t, json.Unmarshal([]byte(line), &one))
		names = append(names, fmt.Sprint(one.Name, one.State, one.Steps, one.Planned))
	}
	require.Equal(t, []string{"donefailed2 2", "goingrunning3 10"}, names)
	out, errs, err = command(t, "runs", t.TempDir())
	require.NoError(t, err)
	require.Empty(t, out)
	require.Contains(t, errs, "there is no run in ")
	_, _, err = command(t, "runs", filepath.Join(root, "nowhere"))
	require.ErrorContains(t, err, "is no folder; name the one with the runs")
}

func TestStatusOfARun(t *testing.T) {
	root := twoRuns(t)
	out, _, err := command(t, "status", filepath.Join(root, "going"))
	require.NoError(t, err)
	safe(t, out)
	for _, want := range []string{
		"going: grpo/ppo_clip, model tiny\n", "state     running, 3 of 10 steps done, last sign of it",
		"waits for tool search: 2, the oldest train-3-0-1\\x1b[2J", ", for 4s\n", "groups    3 being sampled, 2 wait for their update, 4 in it; at most 12 at once, 1 policy version behind (most 2)\n", "left      about 12s: 7 steps of 2s each\n", "last step reward 0.400\n",
		"          sampling 1.5 s, training 0.5 s\n", "reward    0.100 -> 0.400  ▁▃█\n", "held-out  0.333 -> 0.667  ▁█\n", "failures  failed 1/2  environment: the world has ended", "tool errors 1/1  search: gone",
	} {
		require.Contains(t, out, want)
	}
	require.Regexp(t, `(?m)^now       the update of step 4, for ([3-9]|[1-5]\d)s \(process `, out)
	out, _, err = command(t, "status", "--json", filepath.Join(root, "going"))
	require.NoError(t, err)
	var s struct {
		State string
		Waits []runfolder.Wait
		Left  float64 `json:"left_seconds"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.Equal(t, "running", s.State)
	require.Len(t, s.Waits, 1)
	_, _, err = command(t, "status", filepath.Join(root, "goign"))
	require.EqualError(t, err, fmt.Sprintf("%q is no run folder (did you mean %q?)", filepath.Join(root, "goign"), filepath.Join(root, "going")))
	_, _, err = command(t, "status")
	var usage *UsageError
	require.ErrorAs(t, err, &usage)
}

// A run whose process was killed says how to go on with it: with the settings that it was begun with, which its job file does not have.
func TestAKilledRunSaysHowToGoOn(t *testing.T) {
	killed := func(file string, sets ...string) (dir string) {
		dir = filepath.Join(t.TempDir(), "run")
		j, err := job.Load(file, sets...)
		require.NoError(t, err)
		f := runfolder.New(dir, false)
		require.NoError(t, f.Open(j, func(string) {}))
		require.NoError(t, f.DB.AddStep(context.Background(), 0, map[string]float64{"reward/mean": 1}, nil))
		require.NoError(t, f.WriteNow(runfolder.Now{Host: "elsewhere", PID: 1, Written: time.Now().Add(-time.Hour)}))
		require.NoError(t, f.Close())
		return dir
	}
	says := func(dir, want string) {
		t.Helper()
		out, _, err := command(t, "status", dir)
		require.NoError(t, err)
		require.Contains(t, out, "\ngo on     "+want+"\n")
		_, _, err = command(t, "train", dir, "--resume")
		require.EqualError(t, err, dir+" is a run folder; train takes a job file, and goes on with a run by: "+want)
	}
	tiny, err := filepath.Abs("../examples/tiny.yaml")
	require.NoError(t, err)
	dir := killed(tiny, "trainer.steps=6", "trainer.learning_rate=5e-4", "agent.system=it's $6")
	says(dir, "agentfly train "+tiny+` --set 'agent.system=it'\''s $6' --set trainer.steps=6 --set trainer.learning_rate=0.0005 --output `+dir+" --resume")
	dir = killed(tiny)
	says(dir, "agentfly train "+tiny+" --output "+dir+" --resume")

	// --set output=DIR and --output would contradict each other.
	out := filepath.Join(t.TempDir(), "named")
	dir = killed(tiny, "output="+out)
	says(dir, "agentfly train "+tiny+" --output "+dir+" --resume")
	require.NoError(t, os.Rename(dir, out))
	says(out, "agentfly train "+tiny+" --set output="+out+" --resume")

	// A job file that is gone cannot be held against the run's job.
	text, err := os.ReadFile(tiny)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "job.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	dir = killed(file, "trainer.steps=6")
	require.NoError(t, os.Remove(file))
	says(dir, "agentfly train "+file+" --output "+dir+" --resume, and the options of --set that it was begun with, which cannot be told: open "+file+": no such file or directory")
}

// A distillation is told by its divergence from the teacher, in steps and on held-out tasks, wherever it is told; its rewards may all be 0.
func TestDistillationsAreToldByTheirDivergence(t *testing.T) {
	root := t.TempDir()
	dir, rewarded := filepath.Join(root, "run"), filepath.Join(root, "rewarded")
	var steps []map[string]float64
	for _, kl := range []float64{0.9, 0.5, 0.2} {
		steps = append(steps, map[string]float64{"reward/mean": 0, "distill/reverse_kl": kl})
	}
	before, after := 0.8, 0.12
	overviewtest.Run{Job: "name: run\ndistill: {teacher: {path: t}}\n", Steps: steps, Evaluations: []overviewtest.Evaluation{{Name: "before", ReverseKL: &before}, {Name: "after", Step: 3, ReverseKL: &after}}}.Write(t, dir)
	overviewtest.Run{Steps: overviewtest.Steps(0.1, 0.2, 0.3), Evaluations: []overviewtest.Evaluation{{Name: "after", Step: 3, Rewards: map[string]float64{"a": 1}}}}.Write(t, rewarded)

	out, _, err := command(t, "runs", root)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^run .* 3 +KL 0\.200 +0\.120 +0\.120 @3 `, out)
	out, _, err = command(t, "status", dir)
	require.NoError(t, err)
	require.Contains(t, out, "\nKL        0.900 -> 0.200  ")
	require.Contains(t, out, "\nheld-out  0.800 -> 0.120  ")
	require.NotContains(t, out, "0 -> 0 ")
	out, _, err = command(t, "plot", dir)
	require.NoError(t, err)
	require.Contains(t, out, "distill/reverse_kl\n")
	require.Contains(t, out, "\neval/reverse_kl\n")
	require.NotContains(t, out, "reward")
	out, _, err = command(t, "compare", dir, dir)
	require.NoError(t, err)
	require.Contains(t, out, "\neval/reverse_kl  step 0  step 3\nA                 0.800   0.120\n")
	require.Contains(t, out, "\nheld-out tasks are not compared: a run has no evaluation of tasks by a reward\n")

	out, _, err = command(t, "plot", dir, rewarded) // beside a run without a teacher it is drawn by what both have
	require.NoError(t, err)
	require.Contains(t, out, "reward/mean\n")
	require.Contains(t, out, "\neval/reward\n")
}

func TestRunsAreCompared(t *testing.T) {
	root := twoRuns(t)
	out, _, err := command(t, "compare", filepath.Join(root, "done"), filepath.Join(root, "going"))
	require.NoError(t, err)
	safe(t, out)
	for _, want := range []string{
		"settings that differ\nsetting        A       B\nname           \"done\"  \"going\"\ntrainer.steps  2       10\n",
		"reward/mean  step 1\nA             0.300\nB             0.100\n",
		"held-out tasks, A (after, step 2) against B (step-2, step 2)\n  3 tasks: mean +0.333, 95% interval +0.000 to +1.000 (no difference is shown)\n  1 better, 0 worse, 2 the same\n  better 0 -> 1  a\n",
	} {
		require.Contains(t, out, want)
	}
	_, _, err = command(t, "compare", filepath.Join(root, "done"))
	require.ErrorContains(t, err, "takes two run folders or more; got 1")
}

// Of some epochs the steps are those that the run counted with its data; where it wrote none, no number stands in their place.
func TestStepsOfEpochs(t *testing.T) {
	root := t.TempDir()
	host, _ := os.Hostname()
	at := time.Now()
	for name, planned := range map[string]int{"new": 40, "old": 0} {
		overviewtest.Run{
			Job: overviewtest.SFTJob(name, 5), Planned: planned, Steps: overviewtest.Steps(0, 0),
			Now: &runfolder.Now{Host: host, PID: os.Getpid(), Written: at, Since: at, Doing: "the update of step 3"},
		}.Write(t, filepath.Join(root, name))
	}
	out, _, err := command(t, "runs", root)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^new  running +2/40 `, out)
	require.Regexp(t, `(?m)^old  running +2  `, out)
	out, _, err = command(t, "compare", filepath.Join(root, "new"), filepath.Join(root, "old"))
	require.NoError(t, err)
	require.Regexp(t, `(?m)^A +\S+new +running +2/40 `, out)
	require.Regexp(t, `(?m)^B +\S+old +running +2  `, out)
	for name, want := range map[string]string{"new": "running, 2 of 40 steps done, last sign", "old": "running, 2 steps done, last sign"} {
		out, _, err = command(t, "status", filepath.Join(root, name))
		require.NoError(t, err)
		require.Contains(t, out, want)
		require.Equal(t, name == "new", strings.Contains(out, "\nleft "), out)
	}
	out, _, err = command(t, "runs", "--json", filepath.Join(root, "old"))
	require.NoError(t, err)
	require.NotContains(t, out, "planned")
}

// Of two runs of which one has the metric, the curve has that one's name, and the other is told of.
func TestARunWithoutTheMetricIsNamed(t *testing.T) {
	root := twoRuns(t)
	overviewtest.Run{Steps: []map[string]float64{{"sft/loss": 2}, {"sft/loss": 1}}}.Write(t, filepath.Join(root, "tuned"))
	going, tuned, svg := filepath.Join(root, "going"), filepath.Join(root, "tuned"), filepath.Join(root, "b.svg")
	out, errs, err := command(t, "plot", going, tuned, "--metric", "sft/loss", "--height", "4")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^ +tuned$`, out)
	require.Equal(t, "note: going has no sft/loss\n", errs)
	_, _, err = command(t, "plot", going, tuned, "--metric", "sft/loss", "--svg", svg)
	require.NoError(t, err)
	drawn, err := os.ReadFile(svg)
	require.NoError(t, err)
	require.Contains(t, string(drawn), ">tuned<")
	out, _, err = command(t, "plot", tuned, "--metric", "sft/loss", "--height", "4")
	require.NoError(t, err)
	require.NotContains(t, out, "tuned")
}

// Evaluations stand between the step that they follow and the next, and an id that another filter leaves out is no unknown one.
func TestTrajectoriesInTheOrderOfTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{
		Steps: overviewtest.Steps(0.1, 0.2), Evaluations: []overviewtest.Evaluation{{Name: "step-1", Step: 1, Rewards: map[string]float64{"a": 0}}},
		Train: []overviewtest.Sampled{{Step: 0, Stop: trajectory.StopAnswer}, {Step: 1, Stop: trajectory.StopAnswer}},
	}.Write(t, dir)
	ids := func(args ...string) []string {
		out, _, err := command(t, append([]string{"inspect", "trajectory", "--run", dir, "--table"}, args...)...)
		require.NoError(t, err)
		return regexp.MustCompile(`(?m)^(?:train|eval)-\S+`).FindAllString(out, -1)
	}
	require.Equal(t, []string{"train-0-0-0", "eval-step-1-1-0-0", "train-1-0-0"}, ids("--sort", "step"))
	require.Equal(t, []string{"train-1-0-0", "eval-step-1-1-0-0", "train-0-0-0"}, ids("--sort=-step"))
	require.Empty(t, ids("--id", "train-0-0-0", "--step", "2"))
	require.Empty(t, ids("--id", "train-0-0-0", "--phase", "eval"))
	_, _, err := command(t, "inspect", "trajectory", "--run", dir, "--id", "train-7-0-0", "--step", "2")
	require.ErrorContains(t, err, `there is no trajectory "train-7-0-0"`)
}

// Where no trajectory matches, people are told what there is in place of what they named; standard output stays empty, and the status 0.
func TestNoTrajectoryMatches(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{
		Steps: overviewtest.Steps(0.1, 0.2),
		Train: []overviewtest.Sampled{
			{Step: 0, Group: 1, Turns: []trajectory.Turn{calling("calculator", "2+2", "4", "")}, Stop: trajectory.StopAnswer, Reward: 0.5}, {Step: 1, Group: 2, Stop: trajectory.StopAnswer},
		},
	}.Write(t, dir)
	for args, want := range map[string]string{
		"--table --tool calculater":  `--tool calculater (did you mean "calculator"?): the tools that were called: calculator` + "\n",
		"--view --step 99":           "--step 99: the steps are 1 to 2\n",
		"--task task-7":              `--task task-7: the tasks: task-1, task-2` + "\n",
		"--table --min-reward 0.9":   "",
		"--step 2 --tool calculator": "",
	} {
		out, errs, err := command(t, append([]string{"inspect", "trajectory", "--run", dir}, strings.Fields(args)...)...)
		require.NoError(t, err, args)
		require.Empty(t, out, args)
		require.Equal(t, "no trajectory matches; "+dir+" holds 2\n"+want, errs, args)
	}
	empty := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{}.Write(t, empty)
	out, errs, err := command(t, "inspect", "trajectory", "--run", empty, "--table")
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, empty+" holds no trajectory yet\n", errs)
}

// Groups and their members stand in the order of their numbers, not of their letters.
func TestTrajectoriesInTheOrderOfTheirNumbers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	var all []overviewtest.Sampled
	for _, group := range []int{10, 2, 1} {
		for _, index := range []int{11, 3} {
			all = append(all, overviewtest.Sampled{Group: group, Index: index, Stop: trajectory.StopAnswer})
		}
	}
	overviewtest.Run{Steps: overviewtest.Steps(0.1), Train: all}.Write(t, dir)
	out, _, err := command(t, "inspect", "trajectory", "--run", dir, "--table")
	require.NoError(t, err)
	require.Equal(t, []string{"train-0-1-3", "train-0-1-11", "train-0-2-3", "train-0-2-11", "train-0-10-3", "train-0-10-11"}, regexp.MustCompile(`(?m)^train-\S+`).FindAllString(out, -1))
}

func TestRunsAreDrawn(t *testing.T) {
	root := twoRuns(t)
	going, done := filepath.Join(root, "going"), filepath.Join(root, "done")
	out, _, err := command(t, "plot", going, done, "--height", "4")
	require.NoError(t, err)
	require.NotContains(t, out, "\x1b")
	require.Contains(t, out, "reward/mean\n0.400 ┤")
	require.Contains(t, out, "* going\n")
	require.Contains(t, out, "\neval/reward\n")
	svg, png := filepath.Join(root, "a.svg"), filepath.Join(root, "a.png")
	out, errs, err := command(t, "plot", going, "--metric", "seconds/step", "--svg", svg, "--png", png)
	require.NoError(t, err)
	require.Empty(t, out)
	require.Contains(t, errs, "wrote "+svg+"\n")
	for path, begins := range map[string]string{svg: "<svg ", png: "\x89PNG"} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(data, []byte(begins)))
	}
	_, _, err = command(t, "plot", going, "--metric", "reward/maen")
	require.EqualError(t, err, `no run has the metric "reward/maen" (did you mean "reward/mean"?); agentfly plot --list names those there are`)
	out, _, err = command(t, "plot", going, "--list")
	require.NoError(t, err)
	require.Contains(t, out, "eval/reward\nreward/mean\n")
	out, _, err = command(t, "plot", going, "--metric", "reward/mean", "--json")
	require.NoError(t, err)
	require.JSONEq(t, `{"reward/mean":{"going":{"steps":[1,2,3],"values":[0.1,0.2,0.4]}}}`, out)
	_, _, err = command(t, "plot", going, "--svg", filepath.Join(root, "nowhere", "a.svg"))
	require.Error(t, err)
	for args, want := range map[string]string{
		"--json --png FILE":     "--json and --png are two ways to show curves; give one of the two",
		"--json --svg FILE":     "--json and --svg are two ways to show curves; give one of the two",
		"--list --json":         "--list shows names of metrics alone, without --json; give one of the two",
		"--list --svg FILE":     "--list shows names of metrics alone, without --svg; give one of the two",
		"--ascii --png FILE":    "--ascii is for a drawing in the terminal, and --png writes a file; give one of the two",
		"--ascii --json":        "--ascii is for a drawing in the terminal, and --json draws none; give one of the two",
		"--height 9 --list":     "--height is for a drawing in the terminal, and --list draws none; give one of the two",
		"--height 2":            "--height is 2; allowed: 3 to 100",
		"--height -3":           "--height is -3; allowed: 3 to 100",
		"--height 101":          "--height is 101; allowed: 3 to 100",
		"--svg FILE.pdf":        "--svg FILE.pdf: no pdf is written; name the file .svg",
		"--png FILE.svg":        "--png writes a picture, and FILE.svg is named like a drawing; write --svg FILE.svg",
		"--svg FILE.PNG":        "--svg writes a drawing, and FILE.PNG is named like a picture; write --png FILE.PNG",
		"--svg nowhere/x.svg":   "--svg nowhere/x.svg: there is no folder nowhere; make it, or name a file elsewhere",
		"--height 4 --svg FILE": "--height is for a drawing in the terminal, and --svg writes a file; give one of the two",
		"--list --metric ab":    "--list shows names of metrics alone, without --metric; give one of the two",
		"--svg FILE --png " + root + "/./unwanted": "--png and --svg name the same file; give each one of its own",
	} {
		file := filepath.Join(root, "unwanted")
		_, _, err = command(t, append([]string{"plot", going}, strings.Fields(strings.ReplaceAll(args, "FILE", file))...)...)
		var usage *UsageError
		require.ErrorAs(t, err, &usage, args)
		require.EqualError(t, err, strings.ReplaceAll(want, "FILE", file))
		require.NoFileExists(t, file)
	}
}

// A run is one curve, however the runs that are drawn are named and in whatever order.
func TestRunsOfOneNameAreDrawn(t *testing.T) {
	root := t.TempDir()
	overviewtest.Run{Steps: overviewtest.Steps(0.1)}.Write(t, filepath.Join(root, "calc"))
	overviewtest.Run{Steps: overviewtest.Steps(0.2)}.Write(t, filepath.Join(root, "other", "calc"))
	t.Chdir(root)
	for _, runs := range [][]string{{"calc", "other/calc"}, {"other/calc", "calc"}, {filepath.Join(root, "calc"), "other/calc"}} {
		out, _, err := command(t, append([]string{"plot", "--json", "--metric", "reward/mean"}, runs...)...)
		require.NoError(t, err)
		var curves map[string]map[string]struct{ Values []float64 }
		require.NoError(t, json.Unmarshal([]byte(out), &curves))
		got := curves["reward/mean"]
		require.Len(t, got, 2, runs)
		for _, run := range runs {
			require.Equal(t, strings.Contains(run, "other"), got[run].Values[0] == 0.2, out)
		}
	}
}

// A table leaves columns out where the terminal is narrow; no line of it is wider.
func TestTablesFit(t *testing.T) {
	rows := func() [][]string {
		return [][]string{{"run", "state", ">step", "model"}, {"a-name-that-is-rather-long", "running", "3/10", "SmolLM2"}, {"漢字\x1b[2J", "failed", "1", ""}}
	}
	require.Equal(t, []string{
		"run                         state    step  model", "a-name-that-is-rather-long  running  3/10  SmolLM2", `漢字\x1b[2J                 failed      1`,
	}, table(rows(), 0), "a character of two columns counts as two")
	for _, width := range []int{80, 60, 48, 40, 36, 24, 10, 1} {
		for _, line := range table(rows(), width) {
			require.LessOrEqual(t, terminal.ColumnsOf(line), max(width, 17), "%d: %s", width, line)
		}
	}
	wide := [][]string{{"", "run", "state", ">step"}, {"A", "runs/" + strings.Repeat("深", 40), "running", "3/10"}}
	for _, width := range []int{80, 40, 20} {
		for _, line := range table(wide, width) {
			require.LessOrEqual(t, terminal.ColumnsOf(line), width, line)
		}
	}
	require.Regexp(t, `^A  runs/深+…$`, table(wide, 40)[1], "the letter takes the room that it needs")
	require.Equal(t, []string{"run   step", ">abc     1"}, table([][]string{{"run", ">step"}, {">abc", "1"}}, 0), "of a name alone > is a mark")
}

// What an agent of another program sent is searched: its prompts and the results of its tools stand there alone.
func TestTextThatAnAgentSentIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sent := &trajectory.Incoming{Whole: true, After: -1, Messages: json.RawMessage(`[{"role":"user","content":"Find the prompt"},{"role":"tool","content":"The result"}]`)}
	overviewtest.Run{Train: []overviewtest.Sampled{{Turns: []trajectory.Turn{{Completion: "so", Incoming: sent}}, Stop: trajectory.StopAnswer}}}.Write(t, dir)
	for text, found := range map[string]bool{"the PROMPT": true, "the result": true, "nothing": false} {
		out, _, err := command(t, "inspect", "trajectory", "--run", dir, "--table", "--text", text)
		require.NoError(t, err)
		require.Equal(t, found, strings.Contains(out, "train-0-0-0"), text)
	}
}

// A recorded conversation has no reward: it is in no range of rewards, and stands at the end where they are sorted by them.
func TestRecordedConversationsHaveNoReward(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{Train: []overviewtest.Sampled{{Index: 0, Stop: trajectory.StopRecorded}, {Index: 1, Reward: -1, Stop: trajectory.StopAnswer}}}.Write(t, dir)
	for args, want := range map[string]string{"--sort=-reward": `train-0-0-1 +-1\.000 .*\ntrain-0-0-0 +-  `, "--max-reward=1": `seconds.*\ntrain-0-0-1 .*\n$`} {
		out, _, err := command(t, "inspect", "trajectory", "--run", dir, "--table", args)
		require.NoError(t, err)
		require.Regexp(t, want, out, args)
	}
}

func TestTrajectoriesAreFiltered(t *testing.T) {
	root := twoRuns(t)
	ids := func(args ...string) string {
		out, _, err := command(t, append([]string{"inspect", "trajectory", "--run", filepath.Join(root, "going"), "--phase", "train"}, args...)...)
		require.NoError(t, err)
		var got []string
		for line := range strings.Lines(out) {
			var one struct{ Trajectory struct{ ID string } }
			require.NoError(t, json.Unmarshal([]byte(line), &one))
			got = append(got, one.Trajectory.ID)
		}
		return strings.Join(got, " ")
	}
	for args, want := range map[string]string{
		"":                                "train-0-0-0 train-2-0-0 train-2-0-1",
		"--step 3":                        "train-2-0-0 train-2-0-1",
		"--step 3 --limit 1":              "train-2-0-0",
		"--min-reward 0":                  "train-0-0-0 train-2-0-0",
		"--max-reward=-0.5":               "",
		"--min-reward=-2 --failed any":    "",
		"--stop max_turns":                "train-2-0-0",
		"--failed any":                    "train-2-0-1",
		"--failed environment":            "train-2-0-1",
		"--failed infrastructure":         "train-2-0-1",
		"--failed engine":                 "",
		"--tool search":                   "train-0-0-0 train-2-0-0",
		"--tool nothing":                  "",
		"--tool search --tool-failed any": "train-2-0-0",
		"--tool-failed raised":            "train-2-0-0",
		"--tool-failed broken":            "",
		"--text PARIS":                    "train-0-0-0 train-2-0-0",
		"--text capital":                  "train-0-0-0",
		"--text ended":                    "train-2-0-1",
		"--sort reward":                   "train-0-0-0 train-2-0-0 train-2-0-1",
		"--sort=-reward":                  "train-2-0-0 train-0-0-0 train-2-0-1",
		"--sort=-turns":                   "train-2-0-0 train-0-0-0 train-2-0-1",
		"--task task-0 --sort tokens":     "train-2-0-1 train-0-0-0 train-2-0-0",
		"--id train-2-0-1":                "train-2-0-1",
	} {
		require.Equal(t, want, ids(strings.Fields(args)...), args)
	}
	out, _, err := command(t, "inspect", "trajectory", "--run", filepath.Join(root, "going"), "--table", "--phase", "eval", "--sort=-reward", "--limit", "2")
	require.NoError(t, err)
	require.Regexp(t, `^id +reward  stop +turns  tokens  calls  seconds  task  failed  last words\neval-.* 1\.000  answer .*\neval-`, out)
	out, _, err = command(t, "inspect", "trajectory", "--run", filepath.Join(root, "going"), "--table")
	require.NoError(t, err)
	safe(t, out)
	for kind, reward := range map[string]string{"--table": `train-2-0-1 +-  `, "--view": `== train-2-0-1  reward -  `} { // what failed has no reward
		out, _, err = command(t, "inspect", "trajectory", "--run", filepath.Join(root, "going"), kind, "--failed", "any")
		require.NoError(t, err)
		require.Regexp(t, reward, out)
	}
	for want, args := range map[string][]string{
		`--sort is "rewad" (did you mean "reward"?); allowed: reward, step, turns, tokens, calls, seconds, and each behind a -`: {"--sort", "rewad"},
		`--limit is -1; it is 0 (all) or more`:                      {"--limit", "-1"},
		"--min-reward 1 is not below --max-reward 0":                {"--min-reward", "1", "--max-reward", "0"},
		`--step is -5; it is 0 (evaluated before training) or more`: {"--step=-5"},
		`--stop is "max_turn" (did you mean "max_turns"?); allowed: answer, no_action, max_turns, max_tokens, max_calls, terminated, truncated, error, cancelled, recorded`:               {"--stop", "max_turn"},
		`--failed is "infra" (did you mean "infrastructure"?); allowed: any, infrastructure, policy, agent, deadline, engine, environment, render, reward, store, teacher, tool, weights`: {"--failed", "infra"},
		`--tool-failed is "foo"; allowed: any, parse, unknown_tool, bad_arguments, raised, broken, interrupted, limit, off`:                                                               {"--tool-failed", "foo"},
		`--phase is "evl" (did you mean "eval"?); allowed: train, greedy, eval, eval-before, eval-step-2`:                                                                                 {"--phase", "evl"},
	} {
		_, _, err := command(t, append([]string{"inspect", "trajectory", "--run", filepath.Join(root, "going")}, args...)...)
		var usage *UsageError
		require.ErrorAs(t, err, &usage, want)
		require.EqualError(t, err, want)
	}
	for _, how := range [][]string{nil, {"--sort", "reward"}, {"--sort=-turns", "--limit", "1"}} {
		out, _, err = command(t, append([]string{"inspect", "trajectory", "--run", filepath.Join(root, "going"), "--id", "train-9-9-9"}, how...)...)
		require.EqualError(t, err, `store: there is no trajectory "train-9-9-9"`)
		require.Empty(t, out)
		_, _, err = command(t, append([]string{"inspect", "trajectory", "--run", filepath.Join(root, "going"), "--id", "train-2-0-1", "--min-reward", "0"}, how...)...)
		require.NoError(t, err, "it is there, though the other flags leave it out")
	}
	out, _, err = command(t, "inspect", "trajectory", "--run", filepath.Join(root, "going"), "--phase", "greedy")
	require.NoError(t, err)
	require.Empty(t, out)
}

// A trajectory that is damaged keeps no other back: the run's status, lists and exports have the rest, and the ones that print or write trajectories
// fail with the name of the one that they left out.
func TestDamagedTrajectoriesAreLeftOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{Steps: overviewtest.Steps(0.5, 0.25), Train: []overviewtest.Sampled{
		{Step: 0, Index: 0, Reward: 1, Stop: trajectory.StopAnswer}, {Step: 1, Index: 0, Reward: 0.5, Stop: trajectory.StopAnswer}, {Step: 1, Index: 1, Reward: 0.25, Stop: trajectory.StopAnswer},
	}}.Write(t, dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "store.db"))
	require.NoError(t, err)
	_, err = db.Exec("UPDATE trajectories SET json = substr(json, 1, 20) WHERE id = 'train-1-0-0'")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	out, _, err := command(t, "status", dir)
	require.NoError(t, err)
	require.Contains(t, out, "2 of 10 steps done")
	require.Contains(t, out, "trajectory train-1-0-0 is damaged: its checksum is wrong")
	left := "left out 1 damaged trajectory: trajectory train-1-0-0 is damaged: its checksum is wrong"
	for _, args := range [][]string{{"--table"}, {"--table", "--sort=-reward"}, {}} {
		out, _, err := command(t, append([]string{"inspect", "trajectory", "--run", dir}, args...)...)
		require.EqualError(t, err, left)
		require.Contains(t, out, "train-0-0-0")
		require.Contains(t, out, "train-1-0-1")
	}
	out, _, err = command(t, "inspect", "tree", "--run", dir)
	require.EqualError(t, err, left)
	require.Contains(t, out, "none of these trajectories branches")
	_, _, err = command(t, "inspect", "trajectory", "--run", dir, "--id", "train-1-0-0")
	require.EqualError(t, err, "store: trajectory train-1-0-0 is damaged: its checksum is wrong")
	for _, format := range []string{"inspect", "atif", "parquet", "trackio"} {
		out, _, err := command(t, "export", "--out", filepath.Join(dir, "out"), dir, format)
		require.EqualError(t, err, "export: "+format+" of "+dir+": "+left, format)
		require.Contains(t, out, "2 trajectories")
		wrote := strings.Fields(out)[1]
		require.FileExists(t, wrote)
		if format == "atif" {
			text, err := os.ReadFile(wrote)
			require.NoError(t, err)
			require.Equal(t, 2, strings.Count(string(text), "\n"))
		}
	}
}
