package agents

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

type oneString struct {
	Expression string `json:"expression"`
	Digits     int    `json:"digits,omitempty"`
}

type two struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

func testSpecs() []tools.Spec {
	a := tools.NewFunc("calculator", "Computes.", func(context.Context, oneString) (string, error) { return "", nil })
	b := tools.NewFunc("weather", "Forecasts.", func(context.Context, two) (string, error) { return "", nil })
	return []tools.Spec{a.Spec(), b.Spec(), {Name: "roll", Description: "Rolls."}}
}

func calls(pairs ...string) []trajectory.ToolCall {
	var out []trajectory.ToolCall
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, trajectory.ToolCall{Name: pairs[i], Arguments: json.RawMessage(pairs[i+1])})
	}
	return out
}

func parse(t testing.TB, f Format, completion string) Parsed {
	p, err := f.Parse(t.Context(), completion)
	require.NoError(t, err)
	return p
}

func observe(t testing.TB, f Format, results []trajectory.ToolResult) []trajectory.Message {
	m, err := f.Observe(t.Context(), results)
	require.NoError(t, err)
	return m
}

func TestTagsParse(t *testing.T) {
	f, err := NewFormat("tags", testSpecs(), FormatOptions{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		in   string
		want Parsed
	}{
		"call":                 {"<calculator>347 + 589</calculator>", Parsed{Calls: calls("calculator", `{"expression":"347 + 589"}`)}},
		"call with text":       {"I add. <calculator> 1+2\n</calculator> and then", Parsed{Calls: calls("calculator", `{"expression":"1+2"}`)}},
		"quotes and tags":      {`<calculator>"<b>\</calculator>`, Parsed{Calls: calls("calculator", `{"expression":"\"<b>\\"}`)}},
		"only the first call":  {"<calculator>1</calculator><calculator>2</calculator>", Parsed{Calls: calls("calculator", `{"expression":"1"}`)}},
		"object":               {`<weather>{"city": "Rome", "days": 2}</weather>`, Parsed{Calls: calls("weather", `{"city": "Rome", "days": 2}`)}},
		"no arguments":         {"<roll></roll>", Parsed{Calls: calls("roll", "{}")}},
		"empty argument":       {"<calculator></calculator>", Parsed{Calls: calls("calculator", `{"expression":""}`)}},
		"answer":               {"It is <answer> 936 </answer>.", Parsed{Answer: "936", HasAnswer: true}},
		"first answer":         {"<answer>1</answer><answer>2</answer>", Parsed{Answer: "1", HasAnswer: true}},
		"call before answer":   {"<calculator>1</calculator><answer>1</answer>", Parsed{Calls: calls("calculator", `{"expression":"1"}`)}},
		"answer before call":   {"<answer>1</answer><calculator>1</calculator>", Parsed{Calls: calls("calculator", `{"expression":"1"}`)}},
		"answer and open call": {"<answer>1</answer><calculator>1", Parsed{Errors: []string{"the call of calculator is not closed; write <calculator>expression</calculator>"}}},
		"open call":            {"<calculator>347 +", Parsed{Errors: []string{"the call of calculator is not closed; write <calculator>expression</calculator>"}}},
		"wrong closing":        {"<calculator>1</calc>", Parsed{Errors: []string{"the call of calculator is not closed; write <calculator>expression</calculator>"}}},
		"open answer":          {"<answer>9", Parsed{Errors: []string{"the answer is not closed; write <answer>...</answer>"}}},
		"broken object":        {"<weather>Rome</weather>", Parsed{Errors: []string{`the call of weather does not hold a JSON object; write <weather>{"city": string, "days": integer}</weather>`}}},
		"null object":          {"<weather>null</weather>", Parsed{Errors: []string{`the call of weather does not hold a JSON object; write <weather>{"city": string, "days": integer}</weather>`}}},
		"near name":            {"<calculater>1</calculater>", Parsed{Errors: []string{`there is no tool "calculater" (did you mean "calculator"?)`}}},
		"other markup":         {"a <b>bold</b> word, 1 < 2 > 0", Parsed{}},
		"text":                 {"The result is 936.", Parsed{}},
		"empty":                {"", Parsed{}},
		"thinking":             {"<think><calculator>1</calculator></think><answer>2</answer>", Parsed{Answer: "2", HasAnswer: true}},
		"open thinking":        {"<think><calculator>1</calculator>", Parsed{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, parse(t, f, c.in)) })
	}
}

func TestHermesParse(t *testing.T) {
	f, err := NewFormat("hermes", testSpecs(), FormatOptions{})
	require.NoError(t, err)
	const usage = `<tool_call>{"name": "...", "arguments": {...}}</tool_call>`
	for name, c := range map[string]struct {
		in   string
		want Parsed
	}{
		"call":                 {"<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1+2\"}}\n</tool_call>", Parsed{Calls: calls("calculator", `{"expression": "1+2"}`)}},
		"two calls":            {`x<tool_call>{"name":"a","arguments":{}}</tool_call>` + "\n" + `<tool_call>{"name":"b"}</tool_call>y`, Parsed{Calls: calls("a", "{}", "b", "{}")}},
		"closing tag missing":  {`<tool_call>{"name":"a","arguments":{}}`, Parsed{Calls: calls("a", "{}")}},
		"closing tag in value": {`<tool_call>{"name":"a","arguments":{"s":"</tool_call>"}}</tool_call>`, Parsed{Calls: calls("a", `{"s":"</tool_call>"}`)}},
		"string arguments":     {`<tool_call>{"name":"a","arguments":"{\"x\":1}"}</tool_call>`, Parsed{Calls: calls("a", `{"x":1}`)}},
		"one right, one wrong": {`<tool_call>{"name":"a"}</tool_call><tool_call>b</tool_call>`, Parsed{Calls: calls("a", "{}"), Errors: []string{"the call is not JSON (invalid character 'b' looking for beginning of value); write " + usage}}},
		"cut":                  {`<tool_call>{"name":"a","arg`, Parsed{Errors: []string{"the call is not JSON (it ends too early); write " + usage}}},
		"no name":              {`<tool_call>{"arguments":{}}</tool_call>`, Parsed{Errors: []string{`the call has no "name"; write ` + usage}}},
		"list as arguments":    {`<tool_call>{"name":"a","arguments":[1]}</tool_call>`, Parsed{Errors: []string{`"arguments" of a is not a JSON object; write ` + usage}}},
		"text after object":    {`<tool_call>{"name":"a"} x</tool_call>`, Parsed{Errors: []string{"there is text between the call's JSON object and </tool_call>; write " + usage}}},
		"closing tag alone":    {"1+2</tool_call>", Parsed{Errors: []string{"there is </tool_call> without <tool_call>; write " + usage}}},
		"answer":               {" It is 936.\n", Parsed{Answer: "It is 936.", HasAnswer: true}},
		"tagged answer":        {"It is <answer>936</answer>.", Parsed{Answer: "936", HasAnswer: true}},
		"empty":                {" ", Parsed{}},
		"thinking":             {`<think>I could <tool_call>{"name":"a"}</tool_call></think>936`, Parsed{Answer: "936", HasAnswer: true}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, parse(t, f, c.in)) })
	}
}

// What a format writes it reads as the same call.
func TestWrittenCallsAreRead(t *testing.T) {
	for _, name := range []string{"tags", "hermes"} {
		f, err := NewFormat(name, testSpecs(), FormatOptions{})
		require.NoError(t, err)
		for _, call := range calls("calculator", `{"expression":"1 < 2\nand \"3\""}`, "weather", `{"city": "Rome", "days": 2}`, "roll", "{}") {
			text := f.(Writer).Write(call)
			require.Equal(t, Parsed{Calls: []trajectory.ToolCall{call}}, parse(t, f, text), text)
		}
		text := f.(Writer).Write(trajectory.ToolCall{Name: "roll"})
		require.Equal(t, Parsed{Calls: calls("roll", "{}")}, parse(t, f, text), text)
	}
}

func TestObserve(t *testing.T) {
	results := []trajectory.ToolResult{
		{Call: trajectory.ToolCall{ID: "c1", Name: "calculator"}, Observation: "936"},
		{Call: trajectory.ToolCall{Name: "roll"}, Observation: "Error: no dice", Failed: true},
	}
	text := func(m trajectory.Message) string {
		s, err := m.TextContent()
		require.NoError(t, err)
		return m.Role + ": " + s
	}
	f, err := NewFormat("tags", testSpecs(), FormatOptions{})
	require.NoError(t, err)
	m := observe(t, f, results)
	require.Len(t, m, 1)
	require.Equal(t, "user: <result>936</result>\n<result>Error: no dice</result>", text(m[0]))

	f, err = NewFormat("tags", testSpecs(), FormatOptions{ObservationRole: "tool"})
	require.NoError(t, err)
	require.Equal(t, "tool: <result>Error: the call of calculator is not closed; write <calculator>expression</calculator></result>",
		text(observe(t, f, parse(t, f, "<calculator>1").Failures())[0]))

	f, err = NewFormat("hermes", testSpecs(), FormatOptions{})
	require.NoError(t, err)
	m = observe(t, f, results)
	require.Len(t, m, 2)
	require.Equal(t, "tool: 936", text(m[0]))
	require.Equal(t, "c1", m[0].ToolCallID)
	require.Equal(t, "calculator", m[0].Name)
}

func TestInstructions(t *testing.T) {
	f, err := NewFormat("tags", testSpecs(), FormatOptions{})
	require.NoError(t, err)
	require.Equal(t, "Tools:\n<calculator>expression</calculator> Computes.\n<weather>{\"city\": string, \"days\": integer}</weather> Forecasts.\n"+
		"<roll>{}</roll> Rolls.\nCall one tool in a turn. What it returns comes as <result>...</result>. When you know the answer, write <answer>...</answer>.", f.Instructions())
	require.Equal(t, []string{"</calculator>", "</roll>", "</weather>", "</answer>"}, f.Stops())

	f, err = NewFormat("hermes", testSpecs()[1:2], FormatOptions{})
	require.NoError(t, err)
	require.Contains(t, f.Instructions(), "<tools>\n"+`{"type":"function","function":{"name":"weather","description":"Forecasts.","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"],"additionalProperties":false}}}`+"\n</tools>")
}

func TestNewFormatErrors(t *testing.T) {
	_, err := NewFormat("tag", nil, FormatOptions{})
	require.EqualError(t, err, `agents: there is no format "tag" (did you mean "tags"?); the formats are action, fenced, hermes, llama3_json, mistral, qwen3_coder, react, search_r1, tags`)
	_, err = NewFormat("tags", []tools.Spec{{Name: "answer"}}, FormatOptions{})
	require.EqualError(t, err, `agents: format tags: a tool cannot be named "answer", the format uses that tag itself; rename the tool`)
	_, err = NewFormat("tags", []tools.Spec{{Name: "a", Parameters: json.RawMessage("[")}}, FormatOptions{})
	require.ErrorContains(t, err, `agents: format tags: "a"`)
}

func checkParsed(t *testing.T, p Parsed) {
	require.False(t, p.HasAnswer && (len(p.Calls) > 0 || len(p.Errors) > 0), "an answer beside a call: %+v", p)
	require.True(t, p.HasAnswer || p.Answer == "")
	for _, c := range p.Calls {
		var object map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(c.Arguments, &object), "arguments %s", c.Arguments)
		require.NotNil(t, object)
	}
	for _, e := range p.Errors {
		require.NotContains(t, e, "\n")
		require.NotEmpty(t, e)
	}
}

func FuzzTags(f *testing.F) {
	for _, s := range []string{"<calculator>1</calculator>", "<answer>1</answer>", "<<calculator>", "<weather>{}</weather>", "<think>", "</calculator><calculator>", "<a\n>x</a\n>", "</think>"} {
		f.Add(s)
	}
	format, err := NewFormat("tags", testSpecs(), FormatOptions{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, s string) {
		p := parse(t, format, s)
		checkParsed(t, p)
		require.LessOrEqual(t, len(p.Calls), 1)
		// A call that is written in the format is read back, whatever follows it.
		body := strings.TrimSpace(strings.ToValidUTF8(s, "?"))
		if strings.Contains(body, "</calculator>") {
			return
		}
		back := parse(t, format, "<calculator>"+body+"</calculator>"+s)
		require.Len(t, back.Calls, 1)
		var a oneString
		require.NoError(t, json.Unmarshal(back.Calls[0].Arguments, &a))
		require.Equal(t, body, a.Expression)
	})
}

func FuzzHermes(f *testing.F) {
	for _, s := range []string{`<tool_call>{"name":"a"}</tool_call>`, `<tool_call>`, `</tool_call>`, `<tool_call>{"name":"a","arguments":"{}"}`, "<answer>", "text", `"</think>"`} {
		f.Add(s)
	}
	format, err := NewFormat("hermes", testSpecs(), FormatOptions{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, s string) {
		checkParsed(t, parse(t, format, s))
		if !json.Valid([]byte(s)) {
			return
		}
		p := parse(t, format, `<tool_call>{"name": "a", "arguments": {"x": `+s+`}}</tool_call>`)
		require.Len(t, p.Calls, 1)
		require.Equal(t, numbersKept(t, `{"x": `+s+`}`), numbersKept(t, string(p.Calls[0].Arguments)))
	})
}

// numbersKept decodes JSON whose numbers may be greater than a float64 holds.
func numbersKept(t *testing.T, s string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}
