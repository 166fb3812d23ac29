package orchestrator

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/trajectory"
)

// pageKeys are the keys that a part of docs/metrics.md explains, as patterns.
func pageKeys(part string) (all []*regexp.Regexp) {
	for _, item := range strings.Split(part, "\n- ")[1:] {
		keys, _, _ := strings.Cut(item, ":")
		for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(keys, -1) {
			pattern := regexp.MustCompile(`/[A-Z]+$`).ReplaceAllString(key[1], "/.+")
			all = append(all, regexp.MustCompile("^"+pattern+"$"))
		}
	}
	return all
}

func explained(keys []*regexp.Regexp, key string) bool {
	for _, k := range keys {
		if k.MatchString(key) {
			return true
		}
	}
	return false
}

// Every key that runs write into metrics.jsonl stands on docs/metrics.md: those of steps of every kind, and those of evaluations.
func TestEveryKeyOfMetricsIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	text, _, ok := strings.Cut(string(page), "\n## summary.json")
	require.True(t, ok)
	steps, evaluations, ok := strings.Cut(text, "\n## Evaluations")
	require.True(t, ok)
	ofSteps, ofEvaluations := pageKeys(steps), pageKeys(evaluations)
	require.False(t, explained(ofSteps, "accuracy"))
	require.False(t, explained(ofSteps, "reward/"))

	seen := map[string]bool{}
	check := func(r *run) {
		lines, err := os.ReadFile(filepath.Join(r.folder.Dir, "metrics.jsonl"))
		require.NoError(t, err)
		for text := range bytes.Lines(lines) {
			var line map[string]any
			require.NoError(t, json.Unmarshal(text, &line))
			if e, ok := line["eval"]; ok {
				for key := range e.(map[string]any) {
					seen[key] = true
					require.True(t, explained(ofEvaluations, key), "docs/metrics.md lacks the key %s of an evaluation; give the field of report.Evaluation a tag doc", key)
				}
				continue
			}
			delete(line, "step")
			for key := range line {
				seen[key] = true
				require.True(t, explained(ofSteps, key), "docs/metrics.md lacks the key %s of a step; give it a field of report.Step", key)
			}
		}
	}
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := napping(t, m.settings, m.algorithm(), 5)
				evaluates(r, &data.Tasks{Tasks: []trajectory.Task{held("held0", "held0?", "web"), held("held1", "held1?", "book")}})
				r.session.Job.Eval = job.Eval{Every: 2, Samples: 2, Temperature: 1, By: "source"}
				took(t, r)
				check(r)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r, _ := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 2)
		r.objective, r.session.Job.Distill = objective.NewDistillation(rlOf(r), shortTeacher{}, r.session.Notes.Note), &job.Distill{}
		took(t, r)
		check(r)
	})
	synctest.Test(t, func(t *testing.T) {
		r, _ := napping(t, job.Rollout{}, algorithms.Config{}, 2)
		r.session.Job.SFT = &job.SFT{Batch: 2}
		r.objective = objective.NewSFT(r.session.Job, []*trajectory.Trajectory{sampledTokens(t, 3), sampledTokens(t, 4)}, nil, 0)
		r.objective.Prepare(r.found())
		require.NoError(t, r.training().steps(t.Context()))
		check(r)
	})
	for _, key := range []string{"reward/final_answer", "stop/answer", "length/cut_p90", "length/dropped_max", "tools/broken", "sft/loss", "distill/reverse_kl", "sources", "pass"} {
		require.True(t, seen[key], "no run wrote %s, so that the test shows nothing of it", key)
	}
}

// sampledTokens is a trajectory of a turn of n sampled tokens.
func sampledTokens(t *testing.T, n int) *trajectory.Trajectory {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1, 2, 3})
	require.NoError(t, s.AppendResponse(make([]int32, n), make([]float32, n), make([]int32, n)))
	return &trajectory.Trajectory{Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{{CompletionStart: 3, CompletionEnd: 3 + n, ObservationEnd: 3 + n}}}
}
