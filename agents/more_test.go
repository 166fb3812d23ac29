package agents

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

type parseCase struct {
	in   string
	want Parsed
}

func answer(text string) Parsed     { return Parsed{Answer: text, HasAnswer: true} }
func called(pairs ...string) Parsed { return Parsed{Calls: calls(pairs...)} }
func wrong(texts ...string) Parsed  { return Parsed{Errors: texts} }
func expression(text string) Parsed { return called("calculator", `{"expression":"`+text+`"}`) }

func check(t *testing.T, format string, cases map[string]parseCase) {
	t.Helper()
	f := allFormats(t)[format]
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, parse(t, f, c.in)) })
	}
}

// The forms are those of Meta's prompt format page for Llama 3.1 and of vLLM's tests of llama3_json.
func TestLlamaParse(t *testing.T) {
	const usage = `write {"name": "...", "parameters": {...}}`
	check(t, "llama3_json", map[string]parseCase{
		"call":                {`{"name": "calculator", "parameters": {"expression": "1+2"}}`, called("calculator", `{"expression": "1+2"}`)},
		"python tag":          {`<|python_tag|>{"name": "a", "parameters": {}}`, called("a", "{}")},
		"arguments":           {`{"name": "a", "arguments": {"x": 1}}`, called("a", `{"x": 1}`)},
		"both":                {`{"name": "a", "parameters": {"x": 1}, "arguments": {"x": 2}}`, called("a", `{"x": 2}`)},
		"type first":          {`{"type": "function", "name": "a", "parameters": {}}`, called("a", "{}")},
		"several":             {`{"name": "a", "parameters": {}}; {"name": "b", "parameters": {"s": "; {"}} ;{"name":"c","parameters":{}}`, called("a", "{}", "b", `{"s": "; {"}`, "c", "{}")},
		"text around":         {`I call {"name": "a", "parameters": {}} now.`, called("a", "{}")},
		"string arguments":    {`{"name": "a", "parameters": "{\"x\": 1}"}`, called("a", `{"x": 1}`)},
		"a tool without args": {`{"name": "roll"}`, called("roll", "{}")},
		"JSON as an answer":   {`{"capital": "Rome"}`, answer(`{"capital": "Rome"}`)},
		"a person":            {`{"name": "John"}`, answer(`{"name": "John"}`)},
		"text":                {" It is 936.\n", answer("It is 936.")},
		"tagged answer":       {"It is <answer>936</answer>", answer("936")},
		"braces in text":      {"the set {1, 2}", answer("the set {1, 2}")},
		"cut":                 {`{"name": "a", "parameters": {"x`, wrong(`the call is not JSON (it ends too early); ` + usage)},
		"broken":              {`{"name": "a" "parameters": {}}`, wrong(`the call is not JSON (invalid character '"' after object key:value pair); ` + usage)},
		"broken second":       {`{"name": "a", "parameters": {}}; {"name": b}`, Parsed{Calls: calls("a", "{}"), Errors: []string{`the call is not JSON (invalid character 'b' looking for beginning of value); ` + usage}}},
		"a list":              {`{"name": "a", "parameters": [1]}`, wrong(`"parameters" of a is not a JSON object; ` + usage)},
		"no name":             {`{"name": "", "parameters": {}}`, wrong(`the call has no "name"; ` + usage)},
		"code behind the tag": {`<|python_tag|>print(1)`, wrong(`after <|python_tag|> comes no JSON object; ` + usage)},
		"thinking":            {`<think>{"name": "a", "parameters": {}}</think>5`, answer("5")},
		"empty":               {"", Parsed{}},
	})
}

// The forms are those of mistral-common's instruct tokenizers v3 to v7 and v11, and of vLLM's tests.
func TestMistralParse(t *testing.T) {
	const usage = `write [TOOL_CALLS][{"name": "...", "arguments": {...}}]`
	check(t, "mistral", map[string]parseCase{
		"list":             {`[TOOL_CALLS] [{"name": "calculator", "arguments": {"expression": "1+2"}}]`, called("calculator", `{"expression": "1+2"}`)},
		"two":              {`[TOOL_CALLS][{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"s": "]"}}]`, called("a", "{}", "b", `{"s": "]"}`)},
		"one object":       {`[TOOL_CALLS]{"name": "a", "arguments": {}}`, called("a", "{}")},
		"marks repeated":   {`[TOOL_CALLS][TOOL_CALLS] [{"name": "a", "arguments": {}}]`, called("a", "{}")},
		"string arguments": {`[TOOL_CALLS][{"name": "a", "arguments": "{\"x\": 1}"}]`, called("a", `{"x": 1}`)},
		"text before":      {`I see.[TOOL_CALLS][{"name": "a", "arguments": {}}]`, called("a", "{}")},
		"name and args":    {`[TOOL_CALLS]calculator[ARGS]{"expression": "1"}`, called("calculator", `{"expression": "1"}`)},
		"several names":    {`[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]b[ARGS]{"x": "[TOOL_CALLS]"}`, called("a", "{}", "b", `{"x": "[TOOL_CALLS]"}`)},
		"no args mark":     {`[TOOL_CALLS]a{"x": 1}`, called("a", `{"x": 1}`)},
		"a call id":        {`[TOOL_CALLS]a[CALL_ID]D681PevKs[ARGS]{}`, called("a", "{}")},
		"text":             {"It is [1].", answer("It is [1].")},
		"empty list":       {`[TOOL_CALLS][]`, wrong("the list of calls is empty; " + usage)},
		"a number":         {`[TOOL_CALLS][7]`, wrong("the call is not a JSON object; " + usage)},
		"one is wrong":     {`[TOOL_CALLS][{"name": "a", "arguments": {}}, {"arguments": {}}]`, wrong(`the call has no "name"; ` + usage)},
		"cut":              {`[TOOL_CALLS][{"name": "a"`, wrong("the call is not JSON (it ends too early); " + usage)},
		"nothing":          {`ok [TOOL_CALLS] `, wrong("nothing follows [TOOL_CALLS]; " + usage)},
		"no arguments":     {`[TOOL_CALLS]a`, wrong("the call has no arguments; " + usage)},
		"a list of args":   {`[TOOL_CALLS]a[ARGS][1]`, wrong("behind [TOOL_CALLS] stands neither a list of calls nor a name with its arguments; " + usage)},
		"broken args":      {`[TOOL_CALLS]a[ARGS]{x}`, wrong("the arguments of a are not JSON (invalid character 'x' looking for beginning of object key string); " + usage)},
		"args cut":         {`[TOOL_CALLS]a[ARGS]{"x": `, wrong("the arguments of a are not JSON (it ends too early); " + usage)},
	})
}

// The forms are those of Qwen3-Coder's chat template and of vLLM's tests of qwen3_coder.
func TestQwenParse(t *testing.T) {
	const usage = "write <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>"
	check(t, "qwen3_coder", map[string]parseCase{
		"call":              {"<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>", called("weather", `{"city": "Rome", "days": 2}`)},
		"on one line":       {"<tool_call><function=weather><parameter=city>Rome</parameter></function></tool_call>", called("weather", `{"city": "Rome"}`)},
		"several lines":     {"<tool_call><function=calculator><parameter=expression>\n\n1 +\n 2\n\n</parameter></function></tool_call>", called("calculator", `{"expression": "\n1 +\n 2\n"}`)},
		"text of digits":    {"<function=calculator><parameter=expression>12</parameter></function>", called("calculator", `{"expression": "12"}`)},
		"two":               {"a<tool_call><function=roll></function></tool_call>\n<tool_call>\n<function=calculator>\n</function></tool_call>", called("roll", "{}", "calculator", "{}")},
		"no outer tags":     {"<function=roll>\n</function>", called("roll", "{}")},
		"opening missing":   {"<function=roll></function></tool_call>", called("roll", "{}")},
		"closing missing":   {"<tool_call><function=roll></function>", called("roll", "{}")},
		"parameter open":    {"<function=weather><parameter=city>Rome<parameter=days>3</parameter></function>", called("weather", `{"city": "Rome", "days": 3}`)},
		"last open":         {"<function=weather><parameter=city>\nRome\n</function>", called("weather", `{"city": "Rome"}`)},
		"not an integer":    {"<function=weather><parameter=days>two</parameter></function>", called("weather", `{"days": "two"}`)},
		"an unknown tool":   {"<function=other><parameter=n>2</parameter></function>", called("other", `{"n": "2"}`)},
		"markup in a value": {"<function=calculator><parameter=expression>a < b && \"c\" </tool_call></parameter></function>", called("calculator", `{"expression": "a < b && \"c\" </tool_call>"}`)},
		"text":              {" done ", answer("done")},
		"no function":       {"<tool_call>\n{\"name\": 1}</tool_call>", wrong("behind <tool_call> comes no <function=; " + usage)},
		"cut":               {"<tool_call><function=roll><parameter=x>1", wrong("the call is not closed; " + usage)},
		"no name":           {"<function=><parameter=x>1</parameter></function>", wrong("the call has no name; " + usage)},
		"text inside":       {"<function=roll>go</function>", wrong("the call of roll has text that is no parameter; " + usage)},
	})
}

func TestQwenTypes(t *testing.T) {
	for _, c := range []struct{ schema, text, want string }{
		{`{"type": "integer"}`, " 5 ", "5"},
		{`{"type": "integer"}`, "-12345678901234567890", "-12345678901234567890"},
		{`{"type": "integer"}`, "+5", "5"},
		{`{"type": "integer"}`, "1.5", "1.5"},
		{`{"type": "number"}`, "1e3", "1e3"},
		{`{"type": "number"}`, ".5", "0.5"},
		{`{"type": "number"}`, "inf", `"inf"`},
		{`{"type": "boolean"}`, "True", "true"},
		{`{"type": "boolean"}`, "0", "false"},
		{`{"type": "boolean"}`, "yes", `"yes"`},
		{`{"type": ["string", "null"]}`, "null", "null"},
		{`{"type": ["string", "null"]}`, "nil", `"nil"`},
		{`{"type": ["string", "integer"]}`, "7", "7"},
		{`{"anyOf": [{"type": "null"}, {"type": "integer"}]}`, "7", "7"},
		{`{"enum": [1, 2]}`, "2", "2"},
		{`{"type": "array"}`, `[1, "a"]`, `[1,"a"]`},
		{`{"type": "object"}`, `{"a": "<b>"}`, `{"a":"<b>"}`},
		{`{"type": "object"}`, `{"a": `, `"{\"a\": "`},
		{`{}`, "5", `"5"`},
		{`{"type": "string"}`, `{"a": 1}`, `"{\"a\": 1}"`},
	} {
		f, err := NewFormat("qwen3_coder", []tools.Spec{{Name: "f", Parameters: []byte(`{"type": "object", "properties": {"x": ` + c.schema + `}}`)}}, FormatOptions{})
		require.NoError(t, err)
		require.Equal(t, called("f", `{"x": `+c.want+`}`), parse(t, f, "<function=f><parameter=x>"+c.text+"</parameter></function>"), "%s as %s", c.text, c.schema)
	}
}

// An argument has the type that its schema tells in oneOf, in allOf, behind a $ref, or by a name that vLLM takes for a type, as the tool expects it. An
// alternative that tells no type may be text. Where no $ref is involved, vLLM 0.32.0 reads the same values (testdata/vllm_parsers.json).
func TestQwenTypesOfComposedSchemas(t *testing.T) {
	const defs = `"$defs": {
		"Zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "Digit": {"type": "string", "enum": ["1", "2"]}, "Days": {"type": "integer"}, "a/b%": {"type": "integer"},
		"Place": {"type": "object", "properties": {"x": {"type": "integer"}}}, "Deep": {"anyOf": [{"$ref": "#/$defs/Days"}, {"type": "null"}]},
		"Round": {"oneOf": [{"$ref": "#/$defs/Round"}, {"type": "integer"}]}, "Self": {"$ref": "#/$defs/Self"}}`
	for _, c := range []struct{ schema, text, want string }{
		{`{"oneOf": [{"type": "integer"}, {"type": "null"}]}`, "5", "5"},
		{`{"oneOf": [{"type": "integer"}, {"type": "null"}]}`, "null", "null"},
		{`{"allOf": [{"type": "integer"}]}`, "5", "5"},
		{`{"anyOf": [{"allOf": [{"oneOf": [{"type": "array"}]}]}, {"type": "null"}]}`, "[1]", "[1]"},
		{`{"anyOf": [{"const": "a"}, {"type": "array"}]}`, "a", `"a"`},
		{`{"anyOf": [{}, {"type": "null"}]}`, "90210", `"90210"`},
		{`{"anyOf": [{"$ref": "#/$defs/Zip"}, {"type": "null"}]}`, "90210", `"90210"`},
		{`{"anyOf": [{"$ref": "#/$defs/Digit"}, {"type": "null"}]}`, "1", `"1"`},
		{`{"anyOf": [{"$ref": "#/$defs/Gone"}, {"type": "null"}]}`, "1", `"1"`},
		{`{"anyOf": [{"$ref": "https://example.org/a"}, {"type": "null"}]}`, "1", `"1"`},
		{`{"$ref": "#/$defs/Place"}`, `{"x": 1}`, `{"x":1}`},
		{`{"allOf": [{"$ref": "#/$defs/Place"}]}`, `{"x": 1}`, `{"x":1}`},
		{`{"anyOf": [{"$ref": "#/$defs/Deep"}, {"type": "boolean"}]}`, "5", "5"},
		{`{"$ref": "#/$defs/Deep/anyOf/0"}`, "5", "5"},
		{`{"$ref": "#/$defs/Deep/anyOf/2"}`, "5", `"5"`},
		{`{"$ref": "#/$defs/a~1b%25"}`, "5", "5"},
		{`{"$ref": "#/$defs/Round"}`, "5", "5"},
		{`{"$ref": "#/$defs/Self"}`, "5", `"5"`},
		{`{"$ref": "#/properties/x"}`, "5", `"5"`},
		{`{"type": "str"}`, "90210", `"90210"`},
		{`{"type": "bool"}`, "True", "true"},
		{`{"type": " INTEGER "}`, "5", "5"},
		{`{"type": ["Float", "none"]}`, ".5", "0.5"},
		{`{"type": "date"}`, "5", "5"},
		{`{"type": "date"}`, "May", `"May"`},
	} {
		f, err := NewFormat("qwen3_coder", []tools.Spec{{Name: "f", Parameters: []byte(`{"type": "object", "properties": {"x": ` + c.schema + `}, ` + defs + `}`)}}, FormatOptions{})
		require.NoError(t, err)
		require.Equal(t, called("f", `{"x": `+c.want+`}`), parse(t, f, "<function=f><parameter=x>"+c.text+"</parameter></function>"), "%s as %s", c.text, c.schema)
	}
}

// A schema tells the types of arguments as far as it can be read, and what cannot be read of it keeps no tool from being called. Where calls must be held to
// such a schema, it is refused by the tool's name, unless it is no more than a schema true.
func TestQwenReadsWhatItKnowsOfASchema(t *testing.T) {
	const good = `{"type": "object", "properties": {"days": {"type": "integer"}}}`
	for _, c := range []struct{ schema, text, want string }{
		{`{"type": "object", "properties": {"at": {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}, "n": {"type": "integer"}}}`, "<parameter=at>[1, 2]</parameter><parameter=n>3</parameter>", `{"at": [1,2], "n": 3}`},
		{`{"type": "object", "properties": {"x": true, "n": {"type": ["integer", "null"]}}}`, "<parameter=x>5</parameter><parameter=n>3</parameter>", `{"x": "5", "n": 3}`},
		{`{"type": "object", "properties": {"x": {"type": "array", "prefixItems": [{}], "items": 3}}}`, "<parameter=x>[1]</parameter>", `{"x": [1]}`},
		{`{"type": "object", "properties": {"x": {"anyOf": [true, {"type": "integer"}]}, "y": {"type": {}}}}`, "<parameter=x>5</parameter><parameter=y>5</parameter>", `{"x": 5, "y": "5"}`},
		{`{"type": "object", "properties": [], "required": "x"}`, "<parameter=x>5</parameter>", `{"x": "5"}`},
		{`null`, "<parameter=x>5</parameter>", `{"x": "5"}`},
		{`true`, "<parameter=x>5</parameter>", `{"x": "5"}`},
	} {
		f, err := NewFormat("qwen3_coder", []tools.Spec{{Name: "odd", Parameters: []byte(c.schema)}, {Name: "weather", Parameters: []byte(good)}}, FormatOptions{})
		require.NoError(t, err, c.schema)
		require.Equal(t, called("odd", c.want), parse(t, f, "<function=odd>"+c.text+"</function>"), c.schema)
		require.Equal(t, called("weather", `{"days": 2}`), parse(t, f, "<function=weather><parameter=days>2</parameter></function>"), c.schema)
		_, err = f.(Required).Calls(false)
		if strings.Contains(c.schema, `"x": true`) {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "the parameters of odd: ", c.schema)
	}
}

// The forms are those of the ReAct paper's prompts, LangChain's parser and AgentFly's react agent.
func TestReactParse(t *testing.T) {
	check(t, "react", map[string]parseCase{
		"call":                    {"Thought: I add.\nAction: weather\nAction Input: {\"city\": \"Rome\", \"days\": 2}\n", called("weather", `{"city": "Rome", "days": 2}`)},
		"several lines":           {"Action: weather\nAction Input: {\n \"city\": \"Rome\"\n}", called("weather", "{\n \"city\": \"Rome\"\n}")},
		"one text":                {"Thought: t\nAction: calculator\nAction Input: 1 + 2", expression("1 + 2")},
		"a quoted text":           {"Action: calculator\nAction Input: \"1 + 2\"", expression("1 + 2")},
		"the object all the same": {"Action: calculator\nAction Input: {\"expression\": \"1\"}", called("calculator", `{"expression": "1"}`)},
		"AgentFly's labels":       {"Thought: t\nAction: `calculator`\nInput: {\"expression\": \"1\"}", called("calculator", `{"expression": "1"}`)},
		"made-up observation":     {"Action: calculator\nAction Input: 1\nObservation: 2\nThought: so\nFinal Answer: 2", expression("1")},
		"at a stop":               {"Action: calculator\nAction Input: 1\nObservation:", expression("1")},
		"no arguments":            {"Action: roll\nAction Input:", called("roll", "{}")},
		"an unknown tool":         {"Action: rol\nAction Input: x", called("rol", "{}")},
		"answer":                  {"Thought: I know.\nFinal Answer: 936\nand more\n", answer("936\nand more")},
		"AgentFly's answer":       {"Answer: 936", answer("936")},
		"answer first":            {"Final Answer: 1\nAction: calculator\nAction Input: 1", answer("1")},
		"call first":              {"Action: calculator\nAction Input: 1\nFinal Answer: 1", expression("1")},
		"a label in a line":       {"Thought: the Action: x is\nFinal Answer: Action: y", answer("Action: y")},
		"thinking":                {"<think>Action: roll\nAction Input: {}</think>Final Answer: 2", answer("2")},
		"text":                    {"It is 936.", Parsed{}},
		"a thought alone":         {"Thought: hm", wrong("there is neither Action: nor Final Answer:; " + reactUsage)},
		"no input":                {"Action: calculator", wrong("behind Action: calculator comes no Action Input:; " + reactUsage)},
		"no name":                 {"Action:\nAction Input: 1", wrong("the action has no name; " + reactUsage)},
		"no action":               {"Action Input: 1", wrong("there is Action Input: without Action:; " + reactUsage)},
		"observation first":       {"Observation: 3\nFinal Answer: 3", wrong("the observation comes from the tool; " + reactUsage)},
		"text for an object":      {"Action: weather\nAction Input: Rome", wrong(`the input of weather is not a JSON object; write Action Input: {"city": string, "days": integer}`)},
	})
}

func TestFencedParse(t *testing.T) {
	check(t, "fenced", map[string]parseCase{
		"block":             {"I add.\n```python\nprint(1+2)\n```", expression("print(1+2)")},
		"what follows":      {"```python\nx\n```\n```output\n3\n```\n<answer>3</answer>", expression("x")},
		"only the first":    {"```python\nx\n```\n```python\ny\n```", expression("x")},
		"py":                {"```py\nx\n```\n", expression("x")},
		"Python":            {"``` Python \nx\n```\n", expression("x")},
		"several lines":     {"```python\nif a:\n\n    b\n\n```", expression(`if a:\n\n    b`)},
		"fences in a line":  {"```python\nx = '```'\n```", expression("x = '```'")},
		"another block":     {"```json\n{}\n```\n```python\nx\n```", expression("x")},
		"answer":            {"So <answer> 3 </answer>", answer("3")},
		"answer and JSON":   {"```json\n{}\n```\n<answer>3</answer>", answer("3")},
		"text":              {"I am done.", Parsed{}},
		"thinking":          {"<think>```python\nx\n```</think><answer>3</answer>", answer("3")},
		"open":              {"```python\nx", wrong("the block of code is not closed; " + fencedUsage)},
		"empty":             {"```python\n\n```", wrong("the block of code is empty; " + fencedUsage)},
		"on the fence":      {"```python print(1)```", wrong("the code does not begin on the line behind ```python; " + fencedUsage)},
		"without language":  {"```\nx\n```", wrong("no block of Python; " + fencedUsage)},
		"answer not closed": {"<answer>3", wrong("the answer is not closed; write <answer>...</answer>")},
	})
}

// Cases of Search-R1's own parser (search_r1/llm_agent/generation.py): the first tag that is closed counts, and without one the model is told.
func TestSearchParse(t *testing.T) {
	check(t, "search_r1", map[string]parseCase{
		"search":           {"<think>hm</think>\n<search> who wrote it? </search>", expression("who wrote it?")},
		"answer":           {"I know. <answer> Beijing </answer>", answer("Beijing")},
		"answer first":     {"<answer>early</answer>tail<search>query</search>", answer("early")},
		"search first":     {"<search>a</search><answer>b</answer>", expression("a")},
		"what follows":     {"<search>a</search>\n<information>made up</information><answer>b</answer>", expression("a")},
		"open search":      {"<search>a <answer>b</answer>", answer("b")},
		"nothing in it":    {"<search></search>", expression("")},
		"text":             {"I think it is Rome.", wrong(searchInvalid)},
		"open":             {"<search>a", wrong(searchInvalid)},
		"empty completion": {"", Parsed{}},
	})
	require.Equal(t, "My previous action is invalid. If I want to search, I should put the query between <search> and </search>. If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again.", searchInvalid)
}

func TestActionParse(t *testing.T) {
	check(t, "action", map[string]parseCase{
		"tag":          {"I should <action> go north </action> now", expression("go north")},
		"first line":   {"\n go north \nbecause", expression("go north")},
		"tag below":    {"I think.\n<action>look</action>", expression("look")},
		"two":          {"<action>a</action><action>b</action>", expression("a")},
		"thinking":     {"<think>north?\nsouth?</think>\ngo south", expression("go south")},
		"nothing":      {"", wrong("the completion was empty; write an action")},
		"blank":        {" \n", wrong("the completion was empty; write an action")},
		"open":         {"<action>go", wrong("the action is not closed; write <action>...</action>")},
		"empty":        {"<action> </action>", wrong("the action is empty; write <action>...</action>")},
		"thought only": {"<think>go", wrong("there is no action; write <action>...</action>")},
	})
}

func TestObserveOfEveryFormat(t *testing.T) {
	results := []trajectory.ToolResult{
		{Call: trajectory.ToolCall{ID: "c1", Name: "calculator"}, Observation: "936"},
		{Observation: "Error: no name", Failed: true},
	}
	for name, want := range map[string][]trajectory.Message{
		"hermes":      {{Role: "tool", Name: "calculator", ToolCallID: "c1"}, {Role: "tool"}},
		"llama3_json": {{Role: "tool", Name: "calculator", ToolCallID: "c1"}, {Role: "tool"}},
		"mistral":     {trajectory.Text("user", "936\nError: no name")},
		"qwen3_coder": {{Role: "tool", Name: "calculator", ToolCallID: "c1"}, {Role: "tool"}},
		"tags":        {trajectory.Text("user", "<result>936</result>\n<result>Error: no name</result>")},
		"react":       {trajectory.Text("user", "Observation: 936\nObservation: Error: no name")},
		"fenced":      {trajectory.Text("user", "```output\n936\n```\n```output\nError: no name\n```")},
		"search_r1":   {trajectory.Text("user", "<information>936</information>\nno name")},
		"action":      {trajectory.Text("user", "936\nError: no name")},
	} {
		for i := range want {
			if want[i].Role == "tool" {
				want[i].Content = trajectory.Text("", results[i].Observation).Content
			}
		}
		require.Equal(t, want, observe(t, allFormats(t)[name], results), name)
		f, err := NewFormat(name, testSpecs()[:1], FormatOptions{ObservationRole: "ipython"})
		require.NoError(t, err)
		require.Equal(t, "ipython", observe(t, f, results)[0].Role)
	}
}

func TestInstructionsOfEveryFormat(t *testing.T) {
	for name, f := range allFormats(t) {
		require.NotEmpty(t, f.Instructions(), name)
	}
	for name, want := range map[string][]string{
		"hermes": nil, "llama3_json": nil, "mistral": nil, "qwen3_coder": nil, "react": {"\nObservation:"},
		"fenced": {"\n```\n", "</answer>"}, "search_r1": {"</search>", "</answer>"}, "action": {"</action>"},
	} {
		require.Equal(t, want, allFormats(t)[name].Stops(), name)
	}
	require.Equal(t, []string{"<|python_tag|>", "<think>", "</think>"}, MarksOf(allFormats(t)["llama3_json"]))
	require.Equal(t, []string{"<think>", "</think>"}, MarksOf(allFormats(t)["hermes"]))
	require.Equal(t, "Answer with the help of these tools:\ncalculator: Computes. Action Input: {\"expression\": string, \"digits\": integer (optional)}\n"+
		"weather: Forecasts. Action Input: {\"city\": string, \"days\": integer}\nroll: Rolls. Action Input: {}\n\nUse this format:\nThought: what to do next\n"+
		"Action: one of calculator, roll, weather\nAction Input: its arguments, a JSON object\nObservation: what the tool returned; you do not write it\n"+
		"(Thought, Action, Action Input and Observation may come again)\nFinal Answer: the answer", allFormats(t)["react"].Instructions())
	require.Equal(t, "Solve the task step by step with Python code (Computes). In each turn write ```python, the code on the lines below, and ``` on a line of its own. "+
		"One block runs in a turn, and what it prints comes back as ```output. When you know the answer, write <answer>...</answer>.", allFormats(t)["fenced"].Instructions())
}

func TestFormatsOfOneTool(t *testing.T) {
	for _, name := range []string{"fenced", "search_r1", "action"} {
		for want, specs := range map[string][]tools.Spec{
			"got 0: none":                                         nil,
			"got 3: calculator, roll, weather":                    testSpecs(),
			`and weather takes {"city": string, "days": integer}`: testSpecs()[1:2],
		} {
			_, err := NewFormat(name, specs, FormatOptions{})
			require.ErrorContains(t, err, "agents: format "+name+": it calls ")
			require.ErrorContains(t, err, want)
		}
	}
}

func TestOwnFormat(t *testing.T) {
	r := NewRegistry()
	spec := func(name string, f FormatFactory) FormatSpec { return FormatSpec{Name: name, New: f} }
	require.NoError(t, r.AddFormat(spec("wordy", func(specs []tools.Spec, _ FormatOptions) (Format, error) { return wordy{}, nil })))
	require.EqualError(t, r.AddFormat(spec("wordy", nil)), `agents: register format "wordy": the factory is nil`)
	require.EqualError(t, r.AddFormat(spec("hermes", newHermes)), `agents: register format "hermes": the name is already registered; give the new one another name`)
	require.EqualError(t, r.AddFormat(spec("a b", newHermes)), `agents: register format "a b": a name has 1 to 64 letters, digits, _ or -`)
	f, err := r.NewFormat("wordy", nil, FormatOptions{})
	require.NoError(t, err)
	require.Equal(t, called("roll", "{}"), parse(t, f, "call roll"))
	_, err = r.NewFormat("word", nil, FormatOptions{})
	require.ErrorContains(t, err, `agents: there is no format "word" (did you mean "wordy"?)`)
	f, err = r.NewFormat("hermes", nil, FormatOptions{})
	require.NoError(t, err)
	require.IsType(t, &hermes{}, f)
}
