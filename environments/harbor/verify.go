package harbor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/sandbox"
)

// verdict is what the tests said.
type verdict struct {
	reward float64
	wrong  string // why there is no reward, which counts as 0; "": there is one
	said   string // the end of what the tests wrote
}

const (
	mostReward = 64 << 10 // bytes of reward.txt or reward.json
	mostSaid   = 4 << 10  // bytes of what the tests wrote that are recorded
	ownRoom    = 1 << 20  // bytes of what the tests may write where the agent left no room: the reward, logs
)

// judge runs the tests on a machine that an agent left. Where they give no reward, they run on an untouched machine too: give they one there, it is the
// agent's doing that they gave none, and it is paid 0; give they none there either, the task is broken, which is an error and never a reward.
func (s *source) judge(ctx context.Context, t *task, i *image, m *machine) (*verdict, error) {
	v, err := s.verify(ctx, t, m)
	if err != nil || v.wrong == "" {
		return v, err
	}
	i.control.Lock()
	defer i.control.Unlock()
	if i.judged == nil {
		untouched, err := s.copy(ctx, t, i.machine)
		if err != nil {
			return nil, err
		}
		defer untouched.close()
		if i.judged, err = s.verify(ctx, t, untouched); err != nil {
			return nil, err
		}
	}
	if i.judged.wrong != "" {
		return nil, fmt.Errorf("the tests of the task %s give no reward, on an untouched machine neither: %s; mend the task, or leave it out; they wrote: %s",
			t.name, i.judged.wrong, wording.Clip(strings.Join(strings.Fields(i.judged.said), " "), 200))
	}
	return v, nil
}

// verify puts the tests in place and runs them. No program of the agent runs any more, and none saw them.
func (s *source) verify(ctx context.Context, t *task, m *machine) (*verdict, error) {
	tests, err := s.folders.New()
	if err != nil {
		return nil, err
	}
	defer tests.Close()
	logs, err := s.folders.New()
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	if err := boxed.Copy(ctx, filepath.Join(t.dir, "tests"), tests.Root(), "."); err != nil {
		return nil, err
	}
	script, err := boxed.Read(tests.Root(), "test.sh", mostText)
	if err != nil {
		return nil, err
	}
	if err := tests.Root().Chmod("test.sh", 0o755); err != nil {
		return nil, err
	}
	for _, dir := range []string{"verifier", "agent", "artifacts"} {
		if err := logs.Root().Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
	}
	for _, f := range []*boxed.Folder{tests, logs} {
		if err := f.Own(); err != nil {
			return nil, err
		}
	}
	limit := seconds(t.config.Verifier.Timeout)
	p := m.main.Base
	p.Mounts = append(append([]sandbox.Mount{}, p.Mounts...), sandbox.Mount{Host: tests.Dir(), Inside: "/tests", Writable: true}, sandbox.Mount{Host: logs.Dir(), Inside: "/logs", Writable: true})
	// What an agent put under its home is not what Python or bash begin with.
	p.Env = append(append(append([]string{}, p.Env...), "PYTHONNOUSERSITE=1"), environ(t.config.Verifier.Env)...)
	const bash = "/bin/bash" // the agent may have put another one on the task's PATH
	how := []string{bash, "/tests/test.sh"}
	if strings.HasPrefix(string(script), "#!") {
		how = how[1:]
	}
	p.Args = append([]string{bash, "-c", `exec 2>&1; cd -- "$0"; exec "$@"`, m.main.Begin}, how...)
	p.Limits.Wall = boxed.Within(ctx, limit)
	p.Limits.CPU, p.Limits.Output = boxed.Processor(limit), 1<<20
	for _, f := range []*boxed.Folder{tests, logs} { // the agent had the whole limit
		size, err := f.Size()
		if err != nil {
			return nil, err
		}
		p.Limits.Disk += size
	}
	p.Limits.Disk += ownRoom
	r, err := m.main.Run(ctx, p)
	if err != nil {
		return nil, err
	}
	v := &verdict{said: tail(m.main.Hide(string(r.Stdout)), mostSaid)}
	if err := boxed.Late(r, p.Limits.Wall, limit, "the tests of the task "+t.name, "give environment.step_timeout more"); err != nil {
		return nil, err
	}
	if v.reward, v.wrong, err = rewardOf(logs.Root()); err != nil {
		return nil, fmt.Errorf("the reward of the task %s: %w", t.name, err)
	}
	if why := boxed.Stopped(r, limit); why != "" { // a reward that was written before is not the tests' last word
		v.reward, v.wrong = 0, "the tests were stopped: "+why
	} else if why := boxed.Failed(r, limit); v.wrong != "" && why != "" { // beside a reward the status says nothing, as in Harbor
		v.wrong += " (" + why + ")"
	}
	return v, nil
}

// tail is the end of a text.
func tail(text string, most int) string {
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

// rewardOf reads what the tests wrote: reward.txt, a number, or reward.json, an object with the number "reward", or with one number alone. It must be
// finite and in 0 to 1. An error is the host's.
func rewardOf(logs *os.Root) (reward float64, wrong string, _ error) {
	name := "verifier/reward.txt"
	if _, err := logs.Lstat(name); boxed.HostFault(err) {
		return 0, "", err
	} else if err != nil {
		name = "verifier/reward.json"
	}
	data, err := boxed.Read(logs, name, mostReward)
	short := filepath.Base(name)
	if boxed.HostFault(err) {
		return 0, "", err
	}
	if err != nil {
		if _, missing := logs.Lstat(name); missing != nil {
			return 0, "they wrote neither reward.txt nor reward.json", nil
		}
		return 0, short + " cannot be read: " + wording.Clip(strings.ReplaceAll(why(err), "\n", " "), 100), nil
	}
	text := strings.TrimSpace(string(data))
	if short == "reward.txt" {
		if reward, err = strconv.ParseFloat(text, 64); err != nil {
			return 0, fmt.Sprintf("reward.txt has %q, which is no number", wording.Clip(text, 40)), nil
		}
	} else {
		var all map[string]any
		if err := json.Unmarshal(data, &all); err != nil {
			return 0, "reward.json is no object: " + wording.Clip(err.Error(), 80), nil
		}
		v, ok := all["reward"]
		if !ok && len(all) == 1 {
			for _, v = range all {
			}
		}
		number, is := v.(float64)
		if !is {
			return 0, `reward.json has no number "reward"`, nil
		}
		reward = number
	}
	if math.IsNaN(reward) || reward < 0 || reward > 1 {
		return 0, fmt.Sprintf("%s has %v, and a reward is in 0 to 1", short, reward), nil
	}
	return reward, "", nil
}

// why is an error of a file without its path.
func why(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
