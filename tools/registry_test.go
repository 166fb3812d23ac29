package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

type none struct{}

func textTool(name string, run func(ctx context.Context) (string, error)) Tool {
	return NewFunc(name, "", func(ctx context.Context, _ none) (string, error) { return run(ctx) })
}

func constant(name, text string) Tool {
	return textTool(name, func(context.Context) (string, error) { return text, nil })
}

func TestRegister(t *testing.T) {
	r := NewRegistry(Options{})
	require.NoError(t, r.Register(constant("search", ""), constant("calculator", "")))
	require.Equal(t, []string{"calculator", "search"}, r.Names())
	require.EqualError(t, r.Register(constant("search", "")), `tools: register "search": the name is already registered; give one of the two another name`)
	require.EqualError(t, r.Register(constant("a b", "")), `tools: register "a b": a name has 1 to 64 letters, digits, _ or -`)
	require.EqualError(t, r.Register(nil), "tools: register: the tool is nil")
	require.EqualError(t, r.Register(NewFunc("f", "", func(context.Context, int) (string, error) { return "", nil })),
		`tools: register "f": tools: schema of int: the arguments must be a struct`)
	require.EqualError(t, r.Register(NewFunc[none]("f", "", nil)), `tools: register "f": tools: the function is nil`)
	require.EqualError(t, r.Register(bare{Spec{Name: "list", Parameters: json.RawMessage(`{"type":"array"}`)}}),
		`tools: register "list": the schema of the parameters must have "type": "object"`)
	require.ErrorContains(t, r.Register(bare{Spec{Name: "broken", Parameters: json.RawMessage(`{"type":`)}}), `tools: register "broken": tools: schema: `)

	_, err := r.Lookup("calculater")
	require.EqualError(t, err, `tools: there is no tool "calculater" (did you mean "calculator"?); the tools are calculator, search`)
	_, err = NewRegistry(Options{}).Lookup("x")
	require.EqualError(t, err, `tools: there is no tool "x"; no tool is registered`)
	one, err := r.Select("search")
	require.NoError(t, err)
	require.Equal(t, []string{"search"}, one.Names())
	_, err = r.Select("serch")
	require.ErrorContains(t, err, `did you mean "search"?`)
	_, err = r.Select("search", "search")
	require.ErrorContains(t, err, "given twice")
}

// bare is a tool that is not made by NewFunc.
type bare struct{ spec Spec }

func (b bare) Spec() Spec { return b.spec }
func (b bare) Call(_ context.Context, c Call) (Observation, error) {
	return Observation{Text: c.Trajectory + " " + string(c.Arguments)}, nil
}

func invoke(t *testing.T, r *Registry, name, arguments string) trajectory.ToolResult {
	t.Helper()
	return r.Invoke(t.Context(), "trajectory-1", trajectory.ToolCall{ID: "c", Name: name, Arguments: json.RawMessage(arguments)})
}

func TestInvoke(t *testing.T) {
	var reported []string
	r := NewRegistry(Options{Report: func(tool string, err error, trace []byte) {
		require.NotEmpty(t, trace)
		reported = append(reported, tool+": "+err.Error())
	}})
	require.NoError(t, r.Register(
		bare{Spec{Name: "echo", Parameters: json.RawMessage(`{"type":"object"}`)}},
		constant("broken_utf8", "a\xffb"),
		textTool("fails", func(context.Context) (string, error) {
			return "kept to itself", errors.New("the city is unknown; use a capital")
		}),
		textTool("panics", func(context.Context) (string, error) { panic("/home/user/secret") }),
		textTool("nil_map", func(context.Context) (string, error) {
			var m map[string]int
			//lint:ignore SA5000 the tool is to panic
			m["x"] = 1
			return "", nil
		}),
	))
	got := invoke(t, r, "echo", `{"x": 1}`)
	require.Equal(t, `trajectory-1 {"x": 1}`, got.Observation)
	require.False(t, got.Failed)
	require.Equal(t, "c", got.Call.ID)
	require.Equal(t, "trajectory-1 {}", invoke(t, r, "echo", "").Observation)
	require.Equal(t, "a\uFFFDb", invoke(t, r, "broken_utf8", "{}").Observation)

	for _, c := range []struct{ name, arguments, want string }{
		{"fails", "{}", "Error: the city is unknown; use a capital"},
		{"panics", "{}", "Error: panics failed inside; try other arguments"},
		{"nil_map", "{}", "Error: nil_map failed inside; try other arguments"},
		{"echoo", "{}", `Error: there is no tool "echoo" (did you mean "echo"?); the tools are broken_utf8, echo, fails, nil_map, panics`},
		{"fails", `{"x": 1}`, `Error: fails: there is no argument "x"; the arguments are {}`},
		{"fails", `{`, `Error: fails: the arguments are not JSON (it ends too early); write {}`},
		{"fails", `{} {}`, `Error: fails: there is text after the arguments' JSON object; write only {}`},
		{"fails", `[]`, `Error: fails: the arguments object must be an object, got a list; the arguments are {}`},
	} {
		got := invoke(t, r, c.name, c.arguments)
		require.True(t, got.Failed)
		require.Equal(t, c.want, got.Observation)
	}
	require.Equal(t, []string{"panics: tools: panics: panic: /home/user/secret", "nil_map: tools: nil_map: panic: assignment to entry in nil map"}, reported)
}

func TestInvokeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Options{Timeout: 2 * time.Second})
		free := make(chan struct{})
		require.NoError(t, r.Register(
			textTool("polite", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", fmt.Errorf("wait: %w", ctx.Err()) }),
			textTool("deaf", func(context.Context) (string, error) { <-free; return "late", nil }),
		))
		start := time.Now()
		require.Equal(t, "Error: polite took longer than 2s; ask it for less work", invoke(t, r, "polite", "{}").Observation)
		got := invoke(t, r, "deaf", "{}")
		require.Equal(t, "Error: deaf took longer than 2s; ask it for less work", got.Observation)
		require.Equal(t, 2*time.Second, got.Duration)
		require.Equal(t, 4*time.Second, time.Since(start))
		require.Equal(t, map[string]int{"deaf": 1}, r.Abandoned())
		close(free)
		synctest.Wait()
		require.Nil(t, r.Abandoned())

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, "Error: deaf: the run was interrupted", r.Invoke(ctx, "", trajectory.ToolCall{Name: "deaf"}).Observation)
	})
}

func TestInvokeConcurrently(t *testing.T) {
	r := NewRegistry(Options{})
	require.NoError(t, r.Register(bare{Spec{Name: "echo", Parameters: json.RawMessage(`{"type":"object"}`)}}))
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			id := fmt.Sprint(i)
			require.Equal(t, id+" {}", r.Invoke(t.Context(), id, trajectory.ToolCall{Name: "echo"}).Observation)
		})
	}
	wg.Wait()
	require.Nil(t, r.Abandoned())
}

func TestTruncate(t *testing.T) {
	require.Equal(t, "äöü", cutRunes("äöü", 3))
	for _, n := range []int{101, 150, 4001, 100000} {
		s := strings.Repeat("ä", n-3) + "END"
		got := cutRunes(s, 100)
		require.LessOrEqual(t, utf8.RuneCountInString(got), 100)
		require.GreaterOrEqual(t, utf8.RuneCountInString(got), 97)
		require.True(t, strings.HasPrefix(got, "ääää") && strings.HasSuffix(got, "END"))
		var left int
		_, err := fmt.Sscanf(got[strings.Index(got, "["):], "[%d characters left out]", &left)
		require.NoError(t, err)
		marker := len(fmt.Sprintf("\n[%d characters left out]\n", left))
		require.Equal(t, n, utf8.RuneCountInString(got)-marker+left, "kept and left out add up")
	}
}
