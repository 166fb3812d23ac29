package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
	"go.yaml.in/yaml/v3"
)

// Player samples with a job's policy, agent and tools for a person who watches. Nothing is trained or stored. It is used by one goroutine.
type Player struct {
	Job     *job.Job
	Tasks   []trajectory.Task // that the job trains on; nil: the player only talks
	session *session.Session
}

// NewPlayer opens what samples, with the model at path; "" is the job's own. talks: the tasks and rewards of the job are not read.
func NewPlayer(ctx context.Context, j *job.Job, path string, r Registries, talks bool) (p *Player, err error) {
	p = &Player{Job: j, session: session.New(j)}
	defer func() {
		if err != nil {
			err = errors.Join(stopped(ctx, err, "nothing was sampled"), p.Close())
		}
	}()
	if !talks {
		if err := job.Samplable(j); err != nil {
			return p, err
		}
	}
	if talks && j.Environment != nil {
		return p, j.Fail("environment", "%s: nobody can talk to a job whose agent acts in an environment; agentfly try samples one of its episodes", j.Environment.Kind)
	}
	if err := p.session.Equip(ctx, r); err != nil {
		return p, err
	}
	if !talks {
		train, _, _, err := data.Read(j, p.session.World.Tasks())
		if err != nil {
			return p, err
		}
		p.Tasks = train.Tasks
	}
	return p, p.session.Start(ctx, path, false)
}

// Notes are what the user should know of how the job samples, since the last call.
func (p *Player) Notes() []string { return p.session.Notes.News() }

// Known is what the user should know from the beginning.
func (p *Player) Known() []string { return p.session.Notes.Early() }

// Decode is the text of ids with their special tokens.
func (p *Player) Decode(ids []int32) string { return p.session.Policy.Tokenizer.Decode(ids, false) }

// Weight of a reward of the job by the name of its part; ok is false for the parts of parts.
func (p *Player) Weight(part string) (weight float64, ok bool) {
	for _, w := range p.Job.Rewards {
		name := w.Name
		if as, is := w.Params["as"].(string); is {
			name = as
		}
		if name == part {
			return w.Weight, true
		}
	}
	return 0, false
}

// Try samples one trajectory of the task at an index and scores it.
func (p *Player) Try(ctx context.Context, index int) *trajectory.Trajectory {
	return p.session.Sampler.Sample(ctx, rollout.Place{Phase: "try", Group: index, Task: p.Tasks[index]})
}

// Listener is told what is said while it is said. Its functions are called one at a time.
type Listener struct {
	Text   func(piece string)                 // of the policy, a piece after the other
	Result func(result trajectory.ToolResult) // of a call
}

// Reply has the policy answer the conversation, whose last message is the user's, with the agent's turns and calls. It returns the messages that
// came since, and the stop reason.
func (p *Player) Reply(ctx context.Context, history []trajectory.Message, number int, l Listener) ([]trajectory.Message, *trajectory.Trajectory) {
	s := p.session.Sampler
	s.Reward = nil
	hearing := &heard{Engine: s.Engine, decode: s.Decode, listener: l}
	s.Engine = hearing
	s.Record = func(_ context.Context, t *trajectory.Trajectory) error {
		for _, r := range t.Turns[len(t.Turns)-1].Results {
			l.Result(r)
		}
		return nil
	}
	t := s.Sample(ctx, rollout.Place{Phase: "chat", Step: number, Task: trajectory.Task{ID: "chat", Prompt: history}})
	var said []trajectory.Message
	for _, turn := range t.Turns {
		reply := masks.Reply{Completion: turn.Completion}
		if len(turn.Results) > 0 {
			observed, err := s.Format.Observe(ctx, turn.Results)
			if err != nil {
				t.Fail(trajectory.OriginAgent, err.Error())
				return said, t
			}
			reply.Results = observed
		}
		said = append(said, reply.Messages()...)
	}
	return said, t
}

// Close closes what was opened.
func (p *Player) Close() error { return p.session.Close() }

// heard is an engine whose completions are told while they are sampled, where it can stream.
type heard struct {
	engines.Engine
	decode   func([]int32) string
	listener Listener
}

// Generate implements engines.Engine. A character that is not complete, and one that its successors change, waits for the rest.
func (h *heard) Generate(ctx context.Context, r engines.Request) (engines.Completion, error) {
	var ids []int32
	told := ""
	tell := func(last bool) {
		text := h.decode(ids)
		if !last {
			text = strings.TrimRight(text, "\uFFFD")
		}
		if piece, ok := strings.CutPrefix(text, told); ok && piece != "" {
			h.listener.Text(piece)
			told = text
		}
	}
	s, ok := h.Engine.(engines.Streamer)
	if !ok {
		c, err := h.Engine.Generate(ctx, r)
		ids = c.TokenIDs
		tell(true)
		return c, err
	}
	c, err := s.Stream(ctx, r, engines.Detail{}, func(tokens []engines.Token) {
		for _, token := range tokens {
			ids = append(ids, token.ID)
		}
		tell(false)
	})
	tell(true)
	return c, err
}

// OfRun is the job of a run as it ran, to sample with, from the run folder's copy.
func OfRun(dir string, known *agents.Registry) (*job.Job, error) {
	j, text, err := copyOf(dir, known)
	if err != nil {
		return nil, err
	}
	if hidden := hiddenIn(text); hidden != "" {
		return nil, job.InputError(fmt.Errorf("%s: %s holds %s, in place of a key or a password; write it as ${NAME} in the job file, and name that file",
			filepath.Join(dir, runfolder.JobFile), hidden, job.Secret))
	}
	return j, nil
}

// copyOf reads the run folder's copy of the job, whose paths are those of the job file that it was made of.
func copyOf(dir string, known *agents.Registry) (_ *job.Job, text []byte, err error) {
	from, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return nil, nil, job.InputError(err)
	}
	path, err := from.Fact(runfolder.JobFact)
	if err = errors.Join(err, from.Close()); err != nil {
		return nil, nil, job.InputError(err)
	}
	copied := filepath.Join(dir, runfolder.JobFile)
	if text, err = os.ReadFile(copied); err != nil {
		return nil, nil, job.InputError(fmt.Errorf("%w; name a run folder", err))
	}
	if path == "" { // an older program's
		path = copied
	}
	j, err := job.Parse(path, text, job.Options{Agents: known, Shown: copied, Copied: true})
	return j, text, err
}

// hiddenIn is the block of a run's copy of the job that lacks a secret without which an episode would be another one; "": none.
func hiddenIn(text []byte) (block string) {
	var blocks map[string]yaml.Node
	_ = yaml.Unmarshal(text, &blocks) // it was parsed
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		value := blocks[name]
		if name != "report" && holdsSecret(&value) { // an episode reports nothing
			return name
		}
	}
	return ""
}

func holdsSecret(n *yaml.Node) bool {
	return strings.Contains(n.Value, job.Secret) || slices.ContainsFunc(n.Content, holdsSecret)
}
