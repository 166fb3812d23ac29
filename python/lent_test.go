package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python"
)

// lentWorld answers what functions ask of their environment: it counts steps.
type lentWorld struct {
	mu    sync.Mutex
	asked []string
	at    int
	fail  error
	block chan struct{} // a step waits for it; nil: none does
}

func (w *lentWorld) ask(ctx context.Context, method string, arguments json.RawMessage) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, method+" "+string(arguments))
	if w.fail != nil {
		return nil, w.fail
	}
	if w.block != nil {
		select {
		case <-w.block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch method {
	case "step":
		w.at++
		return json.RawMessage(fmt.Sprintf(`{"observation":"place %d","reward":0.5,"terminated":%t,"truncated":false,"success":false,"info":{"at":%d}}`, w.at, w.at == 3, w.at)), nil
	case "actions":
		return json.RawMessage(`["on","out"]`), nil
	case "score":
		return json.RawMessage(`null`), nil
	case "call":
		return arguments, nil
	}
	return nil, errors.New("no method " + method)
}

const lentFile = `
import asyncio, threading
from agentfly import reward, tool

@tool(environment="corridor")
def walk(steps: int, environment):
    "Goes on."
    seen = []
    for _ in range(steps):
        r = environment.step("on")
        seen.append(r.observation)
        if r.over:
            break
    return {"observation": ", ".join(seen), "paid": r.reward, "at": r.info["at"], "over": r.over}

@tool(environment="corridor")
async def hurry(environment):
    a, b = await asyncio.gather(environment.step("on"), environment.step({"name": "move", "arguments": {"by": 2}}))
    return [a.observation, b.observation, await environment.actions(), await environment.score(), await environment.look(far=True)]

@tool(environment="corridor")
def look(environment):
    return [environment.actions(), environment.score(), environment.look(far=True)]

@tool(environment="corridor")
def careless(environment):
    try:
        environment.step("on")
    except Exception as e:
        return "%s: %s" % (type(e).__name__, e)

@tool(environment="corridor")
def positional(environment):
    return environment.look(1)

kept = []

@tool(environment="corridor")
def keep(environment):
    kept.append(environment)
    return len(kept)

@tool()
def later():
    return kept[0].step("on").observation

@tool()
def mine(environment: str):
    return environment

@reward()
def far(final_response, environment):
    return 0.0 if environment is None else float(len(environment.actions()))
`

// A function with environment= asks the environment of its trajectory in the middle of a call, plain or async, and gets what it says.
func TestAFunctionAsksItsEnvironment(t *testing.T) {
	needPython(t)
	m := load(t, python.Options{Runtime: python.CPython, Workers: 2}, lentFile)
	call := func(name, arguments string, w *lentWorld) (string, error) {
		c := python.Call{Name: name, Trajectory: "t", Arguments: json.RawMessage(arguments)}
		if w != nil {
			c.Environment = w.ask
		}
		r, err := m.Do(t.Context(), c)
		return string(r), err
	}
	w := &lentWorld{}
	r, err := call("walk", `{"steps":2}`, w)
	require.NoError(t, err)
	require.JSONEq(t, `{"observation":"place 1, place 2","paid":0.5,"at":2,"over":false}`, r)
	require.Equal(t, []string{`step {"text": "on"}`, `step {"text": "on"}`}, w.asked)
	r, err = call("walk", `{"steps":9}`, w)
	require.NoError(t, err)
	require.JSONEq(t, `{"observation":"place 3","paid":0.5,"at":3,"over":true}`, r)

	w = &lentWorld{}
	r, err = call("hurry", `{}`, w)
	require.NoError(t, err)
	require.JSONEq(t, `["place 1","place 2",["on","out"],null,{"name":"look","arguments":{"far":true}}]`, r)
	require.Equal(t, `step {"name": "move", "arguments": {"by": 2}}`, w.asked[1])
	r, err = call("look", `{}`, &lentWorld{})
	require.NoError(t, err)
	require.JSONEq(t, `[["on","out"],null,{"name":"look","arguments":{"far":true}}]`, r)
	_, err = call("positional", `{}`, &lentWorld{})
	require.ErrorContains(t, err, "environment.look takes its arguments by name")

	r, err = call("careless", `{}`, &lentWorld{fail: errors.New("the server is gone")})
	require.NoError(t, err)
	require.Equal(t, `"EnvironmentError: the server is gone"`, r)
	_, err = call("walk", `{"steps":1}`, nil)
	require.EqualError(t, err, "walk acts in an environment, and there is none here; call it in a job with environment: {kind: corridor}")

	r, err = call("mine", `{"environment":"x"}`, nil)
	require.NoError(t, err)
	require.Equal(t, `"x"`, r, "an argument of its own")
	r, err = call("far", `{"final_response":"","environment":null}`, &lentWorld{})
	require.NoError(t, err)
	require.Equal(t, "2.0", r)
	r, err = call("far", `{"final_response":"","environment":null}`, nil)
	require.NoError(t, err)
	require.Equal(t, "0.0", r, "None without an environment")
	for _, f := range m.Functions() {
		switch f.Name {
		case "walk":
			require.Equal(t, []string{"steps"}, f.Arguments, "the model does not pass it")
			require.Equal(t, "corridor", f.Environment)
		case "mine":
			require.Empty(t, f.Environment)
		}
	}
}

// An environment that a function kept beyond its call is no longer its own; the worker goes on.
func TestAnEnvironmentEndsWithItsCall(t *testing.T) {
	needPython(t)
	m := load(t, python.Options{Runtime: python.CPython, Workers: 1}, lentFile)
	w := &lentWorld{}
	_, err := m.Do(t.Context(), python.Call{Name: "keep", Trajectory: "t", Environment: w.ask})
	require.NoError(t, err)
	_, err = m.Call(t.Context(), "later", "t", nil)
	require.ErrorContains(t, err, "the call that it was lent to is over")
	require.Empty(t, w.asked)
}

// A call that waits for its environment ends at its deadline, and the worker is not lost.
func TestACallThatWaitsForItsEnvironmentIsCancelled(t *testing.T) {
	needPython(t)
	m := load(t, python.Options{Runtime: python.CPython, Workers: 1}, lentFile)
	_, err := m.Do(t.Context(), python.Call{Name: "keep", Trajectory: "t", Environment: (&lentWorld{}).ask})
	require.NoError(t, err, "the worker has begun: on a busy machine that takes longer than the calls below have")
	for _, name := range []string{"walk", "hurry"} {
		w := &lentWorld{block: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := m.Do(ctx, python.Call{Name: name, Trajectory: "t", Arguments: json.RawMessage(map[string]string{"walk": `{"steps":1}`, "hurry": "{}"}[name]), Environment: w.ask})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = m.Do(t.Context(), python.Call{Name: "keep", Trajectory: "t", Environment: w.ask})
		require.NoError(t, err)
	}
	r, err := m.Do(t.Context(), python.Call{Name: "keep", Trajectory: "t", Environment: (&lentWorld{}).ask})
	require.NoError(t, err)
	require.Equal(t, "4", string(r), "one worker all the time")
}

// An environment's answer that Python's JSON cannot read is an error of what was asked, which the function may catch. The call ends, and the
// worker goes on.
func TestAnAnswerThatPythonCannotRead(t *testing.T) {
	needPython(t)
	m := load(t, python.Options{Runtime: python.CPython, Workers: 1}, lentFile)
	deep := func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(strings.Repeat("[", 3000) + strings.Repeat("]", 3000)), nil
	}
	r, err := m.Do(t.Context(), python.Call{Name: "careless", Trajectory: "t", Environment: deep})
	require.NoError(t, err)
	require.Regexp(t, `^"EnvironmentError: its answer cannot be read \(RecursionError: .*\)"$`, string(r))
	_, err = m.Do(t.Context(), python.Call{Name: "hurry", Trajectory: "t", Environment: deep})
	require.ErrorContains(t, err, "its answer cannot be read (RecursionError: ")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err = m.Do(ctx, python.Call{Name: "mine", Arguments: json.RawMessage(`{"environment":"x"}`)})
	require.NoError(t, err, "no call waits in the worker for ever")
	require.Equal(t, `"x"`, string(r))
}
