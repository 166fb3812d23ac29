package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// twoCalls is an agent that asks with two system prompts, each in a conversation of its own. SECOND is left out where its second call is.
const twoCalls = `
import json, os, urllib.request

def post(address, body):
    head = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    return json.loads(urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), head)).read() or b"{}")

def ask(system, user):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    reply = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"model": "any", "messages": messages})
    return reply["id"], reply["choices"][0]["message"]["content"] or ""

task = json.load(open(os.environ["AGENTFLY_TASK"]))["task"]
call, said = ask("a", task["prompt"][-1]["content"])
SECOND
PAY
`

// weightsAfter trains a job with its agent and returns the weights it ends with.
func weightsAfter(t *testing.T, job, agent string) (weights []byte, run string) {
	t.Helper()
	run = filepath.Join(t.TempDir(), "run")
	status, out, errs := command("", "train", guest(t, job, agent), "--output", run, "--set", "trainer.steps=2")
	require.Zero(t, status, "%s%s", out, errs)
	weights, err := os.ReadFile(filepath.Join(run, "checkpoints", "last", "model.safetensors"))
	require.NoError(t, err)
	return weights, run
}

// The calls of a frozen role have no gradient: a run whose agent leaves them out ends with the same bits. Where the role is trained it does not.
func TestAFrozenRoleHasNoGradient(t *testing.T) {
	needTorch(t)
	pay := `json.dump({"reward": said.count("a") / 8, "answer": said}, open(os.environ["AGENTFLY_RESULT"], "w"))`
	with := strings.NewReplacer("SECOND", `ask("b", said)`, "PAY", pay).Replace(twoCalls)
	without := strings.NewReplacer("SECOND", "", "PAY", pay).Replace(twoCalls)
	agent := "agent: {kind: external, command: [python3, agent.py], processes: 4"
	frozen := strings.Replace(guestJob, agent, agent+", roles: [{name: other, system: ^b$, train: false}]", 1)
	require.NotEqual(t, guestJob, frozen)
	left, _ := weightsAfter(t, frozen, without)
	untouched, run := weightsAfter(t, frozen, with)
	require.True(t, string(left) == string(untouched), "a frozen call moved the weights")
	trained, _ := weightsAfter(t, guestJob, with)
	require.False(t, string(left) == string(trained), "the calls that are left out would have a gradient")

	db := opened(t, run)
	require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
		require.Len(t, r.Trajectory.Turns, 2)
		require.EqualValues(t, "other", r.Trajectory.Turns[1].Role)
		return nil
	}))
}

// A rule of agent.roles that names no call is told at the end of training and of an evaluation, once and in one line; one that an earlier process of
// the run had calls for is not.
func TestARuleThatNamesNoCallIsTold(t *testing.T) {
	needTorch(t)
	second := `
if os.environ.get("OTHER") or json.load(open(os.environ["AGENTFLY_TASK"]))["id"].startswith("train-0-"):
    ask("b", said)`
	pay := `json.dump({"reward": said.count("a") / 8, "answer": said}, open(os.environ["AGENTFLY_RESULT"], "w"))`
	agent := "agent: {kind: external, command: [python3, agent.py], processes: 4"
	job := strings.Replace(guestJob, agent, agent+", roles: [{name: other, system: ^b$, train: false}, {name: planer, system: ^You plan, header: 'x-part: 1'}, {name: auxiliary, tool: none}]", 1)
	job = strings.Replace(job, "data: {train: tasks.jsonl}", "data: {train: tasks.jsonl, eval: held.jsonl}", 1)
	path, run := guest(t, job, strings.NewReplacer("SECOND", second, "PAY", pay).Replace(twoCalls)), filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "held.jsonl"), []byte(`{"prompt": "gh"}`+"\n"), 0o600))
	const typo = "note: agent.roles.1 (planer, system ^You plan, header x-part: 1) named no call: none fits it, or those that do fit a rule before it; correct what it asks for, or leave it out\n"
	for _, more := range [][]string{{"--set", "trainer.steps=1"}, {"--set", "trainer.steps=2", "--resume"}} { // the second process has no call of the rule "other"
		status, out, errs := command("", append([]string{"train", path, "--output", run}, more...)...)
		require.Zero(t, status, "%s%s", out, errs)
		require.Equal(t, 1, strings.Count(out, typo), out)
		require.Equal(t, 1, strings.Count(out, "named no call"), out)
	}
	status, out, errs := command("", "eval", path)
	require.Zero(t, status, "%s%s", out, errs)
	require.Equal(t, 1, strings.Count(errs, "agent.roles.0 (other, system ^b$) and agent.roles.1 (planer, system ^You plan, header x-part: 1) named no call"), errs)
	require.NotContains(t, out, "named no call")
	t.Setenv("OTHER", "yes")
	status, out, errs = command("", "eval", path)
	require.Zero(t, status, "%s%s", out, errs)
	require.Equal(t, 1, strings.Count(errs, typo), errs)
}

// A reward that an agent posts for a call is credited to that call's tokens alone with first_occurrence: the advantages that the update was made with
// are the reward there, and 0 on the other call. With identical both calls have it.
func TestTheCreditOfADecisiveCall(t *testing.T) {
	needTorch(t)
	pay := `
post(os.environ["AGENTFLY_BASE_URL"] + "/agentfly/reward", {"reward": 0.25 + said.count("a") / 8, "call": call, "id": "it"})
json.dump({"reward": 0, "answer": said}, open(os.environ["AGENTFLY_RESULT"], "w"))`
	agent := strings.NewReplacer("SECOND", `ask("b", said)`, "PAY", pay).Replace(twoCalls)
	for mode, second := range map[string]float32{"first_occurrence": 0, "identical": 1} {
		t.Run(mode, func(t *testing.T) {
			_, run := weightsAfter(t, guestJob+"algorithm: {advantage: {name: turn, mode: "+mode+"}}\n", agent)
			db := opened(t, run)
			seen := 0
			require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
				tr := r.Trajectory
				require.Len(t, tr.Turns, 2)
				require.Zero(t, tr.Reward)
				require.NotNil(t, tr.Turns[0].Reward)
				require.Nil(t, tr.Turns[1].Reward)
				reward := float32(*tr.Turns[0].Reward)
				for _, u := range r.Updates {
					for k, share := range []float32{1, second} {
						turn := tr.Turns[k]
						if turn.Sample != u.Sample {
							continue
						}
						for at := turn.CompletionStart; at < turn.CompletionEnd; at++ {
							require.InDelta(t, share*reward, u.Advantages[at], 1e-6, "call %d", k)
							seen++
						}
					}
				}
				return nil
			}))
			require.Positive(t, seen)
		})
	}
}
