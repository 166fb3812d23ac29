package data

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Conversation is a recorded conversation to learn from.
type Conversation struct {
	ID       string // FILE:LINE; FILE:ITEM in a list of which items share a line
	Messages []trajectory.Message
	Learned  []bool            // [messages] what the assistant said and a weight of 0 does not exclude
	Tools    []json.RawMessage // OpenAI schemas that the conversation brings; nil: none
}

// ReadConversations reads JSON lines, or one JSON list, of {"messages": […], "tools": […]}. Messages are OpenAI's; one of
// the assistant with "weight": 0 is read and not learned. columns maps messages to the file's name.
func ReadConversations(path string, columns map[string]string) (out []Conversation, hash string, err error) {
	key := column(columns, "messages")
	hash, err = eachLine(path, func(at place, object map[string]any, text []byte) error {
		c := Conversation{ID: path + ":" + strconv.Itoa(at.number())}
		var err error
		if object[key] == nil {
			return missingColumn("messages", key, object)
		}
		list, ok := object[key].([]any)
		if !ok {
			return fmt.Errorf("the column %q must be a list of messages; another one is mapped with data.columns: {messages: NAME}", key)
		}
		if c.Messages, err = messagesOf(text, key); err != nil {
			return fmt.Errorf("the column %q %w", key, err)
		}
		if c.Learned, err = learned(list, c.Messages); err != nil {
			return err
		}
		if object["tools"] != nil {
			if c.Tools, err = listOf(text, "tools"); err != nil {
				return errors.New(`"tools" must be a list of OpenAI function schemas`)
			}
		}
		out = append(out, c)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: the file holds no conversation", path)
	}
	return out, hash, err
}

// learned marks what the assistant said, without the messages of weight 0.
func learned(raw []any, messages []trajectory.Message) ([]bool, error) {
	out := make([]bool, len(messages))
	for i, m := range messages {
		out[i] = m.Role == "assistant"
		weight, given := raw[i].(map[string]any)["weight"]
		if !given || weight == nil {
			continue
		}
		n, ok := weight.(json.Number)
		if !ok || n != "0" && n != "1" {
			return nil, fmt.Errorf("message %d: the weight must be 0 or 1", i)
		}
		if n == "1" && !out[i] {
			return nil, fmt.Errorf("message %d: only what the assistant said can be learned, its role is %q", i, m.Role)
		}
		out[i] = out[i] && n == "1"
	}
	if !slices.Contains(out, true) {
		return nil, errors.New("no message of the assistant is to be learned")
	}
	return out, nil
}

// SFT is what a job of supervised fine-tuning learns from, before it is laid out in tokens: conversations, or
// trajectories of a run.
type SFT struct {
	Path          string // of what is learned
	Files         []File
	Conversations []Conversation
	Trajectories  []*trajectory.Trajectory
	Eval          []Conversation
}

// Len is how many conversations or trajectories there are to learn.
func (m *SFT) Len() int { return len(m.Conversations) + len(m.Trajectories) }

// ReadSFT reads the data that an SFT job names, and makes sure that nothing held out is learned.
func ReadSFT(j *job.Job) (m *SFT, err error) {
	m = &SFT{}
	var hash string
	if j.Data.Run != "" {
		m.Path = j.Resolve(j.Data.Run)
		if _, missing := os.Stat(filepath.Join(m.Path, store.File)); missing != nil {
			return nil, j.Fail("data.run", "there is no run in %s (no %s); train that one first, or name the folder of a run", m.Path, store.File)
		}
		m.Trajectories, hash, err = chooseFromRun(m.Path, j.Data)
	} else {
		m.Path = j.Resolve(j.Data.Train[0].Path)
		m.Conversations, hash, err = ReadConversations(m.Path, j.Data.Train[0].ColumnsOr(j.Data.Columns))
		if p := (*os.PathError)(nil); errors.As(err, &p) {
			err = j.Unreadable("data.train", j.Data.Train[0].Path, err)
		}
	}
	m.Files = []File{{Name: "train", Path: m.Path, Hash: hash, Run: j.Data.Run != ""}}
	if err == nil && len(j.Data.Eval) > 0 {
		path := j.Resolve(j.Data.Eval[0].Path)
		m.Eval, hash, err = ReadConversations(path, j.Data.Eval[0].ColumnsOr(j.Data.Columns))
		if p := (*os.PathError)(nil); errors.As(err, &p) {
			err = j.Unreadable("data.eval", j.Data.Eval[0].Path, err)
		}
		m.Files = append(m.Files, File{Name: "eval", Path: path, Hash: hash})
	}
	if err == nil {
		err = m.refuseOverlap()
	}
	if err != nil {
		return nil, inputError(err)
	}
	if n := j.Eval.Tasks; n > 0 && n < len(m.Eval) {
		m.Eval = m.Eval[:n]
	}
	return m, nil
}

// refuseOverlap makes sure that no held-out conversation is learned.
func (m *SFT) refuseOverlap() error {
	key := func(c Conversation) string {
		data, _ := json.Marshal(c.Messages) // messages that came from JSON go back to it
		return string(data)
	}
	seen := map[string]string{}
	for _, c := range m.Conversations {
		seen[key(c)] = c.ID
	}
	for _, c := range m.Eval {
		if id, ok := seen[key(c)]; ok {
			return fmt.Errorf("%s is the same conversation as %s; what is evaluated must be held out", c.ID, id)
		}
	}
	return nil
}

// frozenIn tells which roles the run in a folder does not train, by its newest job. Where the folder has none, these are the roles that need no rule of
// a job. Rules that cannot be read are an error: what they freeze would be learned.
func frozenIn(dir string) (func(trajectory.Role) bool, error) {
	path := filepath.Join(dir, "job.yaml")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return job.Agent{}.Frozen(), nil
	}
	j, err := job.Draft(path, job.Options{}) // the rest of the job may name what is not here
	if j == nil {
		return nil, fmt.Errorf("the roles that the run does not train cannot be read: %w", err)
	}
	if all := (*job.Error)(nil); errors.As(err, &all) {
		if wrong := all.Of("agent.roles"); wrong != nil {
			return nil, fmt.Errorf("the roles that the run does not train cannot be read: %s", wrong)
		}
	}
	return j.Agent.Frozen(), nil
}

// chooseFromRun picks trajectories out of a run's store: those that were sampled for training and finished without being cut, with the
// wanted reward, the best of each task, each token sequence once, without the turns that the run does not train. Ties go to the later step, then to
// the smaller id; of tasks with equal sequences the one of the smaller id has them.
func chooseFromRun(dir string, d job.Data) ([]*trajectory.Trajectory, string, error) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return nil, "", err
	}
	defer db.Close()
	frozen, err := frozenIn(dir)
	if err != nil {
		return nil, "", err
	}
	byTask := map[string][]*trajectory.Trajectory{}
	best := math.Inf(-1) // of those whose reward is too low
	unscored := false    // some have no reward where one is asked for
	err = db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		t := r.Trajectory
		if r.Phase != "train" || t.Failed() || t.Cut() {
			return nil
		}
		reward, scored := t.Return(), t.Scored() // that of the turns that are left out included
		if t = t.Trained(frozen); t.ResponseTokens() == 0 {
			return nil
		}
		switch {
		case d.MinReward == nil:
		case !scored:
			unscored = true
			return nil
		case !(reward >= *d.MinReward):
			best = max(best, reward)
			return nil
		}
		byTask[t.TaskID] = append(byTask[t.TaskID], t)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	seen := map[string]bool{}
	var out []*trajectory.Trajectory
	for _, task := range slices.Sorted(maps.Keys(byTask)) {
		all := byTask[task]
		slices.SortFunc(all, func(a, b *trajectory.Trajectory) int {
			return cmp.Or(cmp.Compare(b.Return(), a.Return()), cmp.Compare(b.Step, a.Step), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
		})
		taken := 0
		for _, t := range all {
			key := tokensOf(t)
			if seen[key] || d.BestOf > 0 && taken == d.BestOf {
				continue
			}
			seen[key] = true
			taken++
			out = append(out, t)
		}
	}
	switch {
	case len(out) == 0 && math.IsInf(best, -1) && unscored:
		return nil, "", fmt.Errorf("%s holds no training trajectory that has a reward, which data.min_reward asks for; leave it out", dir)
	case len(out) == 0 && math.IsInf(best, -1):
		return nil, "", fmt.Errorf("%s holds no finished training trajectory to learn; name a run whose job samples, which one with sft does not", dir)
	case len(out) == 0:
		return nil, "", fmt.Errorf("%s holds no finished training trajectory with the reward %g or more that data.min_reward asks for; the best has %g: lower it", dir, *d.MinReward, best)
	}
	slices.SortFunc(out, func(a, b *trajectory.Trajectory) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	h := sha256.New()
	for _, t := range out {
		fmt.Fprintf(h, "%s %v\n%s\n", t.ID, t.Reward, tokensOf(t))
	}
	return out, hex.EncodeToString(h.Sum(nil)), nil
}

// tokensOf is a key of a trajectory's token ids, masks and media.
func tokensOf(t *trajectory.Trajectory) string {
	var b []byte
	for _, s := range t.Samples {
		for i, id := range s.TokenIDs {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
			if s.ResponseMask[i] {
				b = append(b, 1)
			}
		}
		b = s.Prefix(s.Len()).AppendMedia(b, 0, s.Len())
		b = append(b, "|end"...)
	}
	return string(b)
}
