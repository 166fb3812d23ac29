package cli

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// gatewayCommand serves a gateway alone.
type gatewayCommand struct{ *env }

func (c gatewayCommand) command() *cli.Command {
	return &cli.Command{
		Name: "gateway", Usage: "let programs of others sample, and keep what they sampled", ArgsUsage: "MODEL|JOB", Action: c.serve,
		Description: "Agents begin a trajectory with POST /agentfly/sessions and the key that is printed, sample with the key of their session over OpenAI's and\n" +
			"Anthropic's APIs, and end it with POST /agentfly/result. Nothing is trained. See docs/gateway.md.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8100", Usage: "`HOST:PORT`; port 0 takes a free one"},
			&cli.StringFlag{Name: "output", TakesFile: true, Value: "runs/gateway", Usage: "`FOLDER` of the store; sessions that are open in it go on"},
			&cli.StringFlag{Name: "api-key", EnvVars: []string{"AGENTFLY_API_KEY"}, Usage: "`KEY` that begins sessions; default is a new one, which is printed"},
			&cli.StringSliceFlag{Name: "set", Usage: "`KEY=VALUE` changes a setting of the job"},
		},
	}
}

// alone is the job of a model that is served without one.
const alone = `version: 1
name: gateway
model: {path: "${--model}"}
agent: {kind: external, online: true, key: none, max_turns: 1000, forms: held}
rewards: [{name: posted, missing: 0}]
rollout: {max_new_tokens: 4096, max_tokens: 1000000, timeout: 86400}
`

// ofAgents are the settings by which a job's agents come by themselves. What starts agents, confines them or begins them anew is left out.
var ofAgents = []string{
	"agent.kind=external", "agent.online=true", "agent.key=${--api-key}", "agent.listen=${--listen}",
	"agent.command=null", "agent.url=null", "agent.sandbox=false", "agent.show=null", "rollout.tree=null",
}

func (c gatewayCommand) serve(x *cli.Context) error {
	path, err := one(x, "a job file, or a model: a folder, a .gguf or a hub id")
	if err != nil {
		return err
	}
	listen, key := x.String("listen"), x.String("api-key")
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return usagef("--listen is %q; it must be HOST:PORT, such as 127.0.0.1:8100", listen)
	}
	if key == "" {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		key = "ak-" + hex.EncodeToString(b[:])
	}
	j, err := c.job(path, x.StringSlice("set"), key, listen)
	if err != nil {
		return withoutLines(err)
	}
	dir := x.String("output")
	return withoutLines(orchestrator.Gateway(x.Context, j, "", dir, c.registries,
		func(url string) {
			if x.String("api-key") == "" {
				fmt.Fprintf(c.text, "the key that begins sessions: %s\n", key)
			}
			fmt.Fprintf(c.text, "gateway at %s; trajectories are kept in %s\n", url, filepath.Join(dir, "store.db"))
		},
		func(t *trajectory.Trajectory) {
			if t.Failed() {
				fmt.Fprintf(c.text, "%s failed (%s): %s\n", t.ID, t.ErrOrigin, t.Err)
				return
			}
			reward := "no reward"
			if t.Scored() {
				reward = fmt.Sprintf("reward %g", t.Return())
			}
			fmt.Fprintf(c.text, "%s  %d calls, %d samples, %d tokens, %s, %s\n", t.ID, len(t.Turns), len(t.Samples), t.ResponseTokens(), reward, t.StopReason)
		},
		func(note string) { fmt.Fprintf(c.text, "note: %s\n", note) }))
}

// job is that of a file, or one that serves a model, with the key and the address of the flags.
func (c gatewayCommand) job(path string, sets []string, key, listen string) (*job.Job, error) {
	flags := map[string]string{"--api-key": key, "--listen": listen}
	o := job.Options{
		Set: slices.Concat(sets, ofAgents),
		Env: func(name string) (string, bool) { // the value of a ${NAME} is taken letter by letter, that of --set is YAML
			if value, ok := flags[name]; ok {
				return value, true
			}
			return os.LookupEnv(name)
		},
		Agents: c.registries.Agents,
	}
	if ext := filepath.Ext(path); ext == ".yaml" || ext == ".yml" {
		if draft, _ := job.Draft(path, o); draft != nil && job.Untimed(draft) { // what is wrong with it is found again below
			o.Set = append(o.Set, "rollout.timeout=86400")
		}
		return job.LoadWith(path, o)
	}
	if whole, err := filepath.Abs(path); err == nil {
		if _, err := os.Stat(path); err == nil {
			path = whole
		}
	}
	flags["--model"], o.Shown = path, unseen
	return job.Parse("", []byte(alone), o)
}

// unseen names the job of a model in messages. Nobody sees its lines.
const unseen = "gateway"

var inUnseen = regexp.MustCompile(`^` + unseen + `:\d+:\d+: `)

// withoutLines leaves the lines of a job out that nobody sees.
func withoutLines(err error) error {
	if err == nil || !inUnseen.MatchString(err.Error()) {
		return err
	}
	return usagef("%s", inUnseen.ReplaceAllString(err.Error(), unseen+": "))
}
