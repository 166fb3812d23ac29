// Package masks renders conversations to token ids and says which of the ids are trained.
//
// A Renderer joins a tokenizer and a chat template. It renders a prompt, and the observation that stands between two sampled
// completions: the template's own text from the end of the assistant's content to the next generation prompt, tokenized
// alone. So a sequence only grows: prompt ids, sampled ids exactly as the engine returned them, observation ids, sampled
// ids, … (trajectory.Sample). What the model wrote is never tokenized again.
//
// # Tools in the system prompt
//
// A template that ignores the variable tools (SmolLM2's) gets the schemas at the end of the system message instead, or in a
// system message of their own, in the words of the Hermes models and of Qwen2.5:
//
//	# Tools
//
//	You may call one or more functions to assist with the user query.
//
//	You are provided with function signatures within <tools></tools> XML tags:
//	<tools>
//	{"type": "function", "function": {…}}
//	</tools>
//
//	For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
//	<tool_call>
//	{"name": <function-name>, "arguments": <args-json-object>}
//	</tool_call>
//
// with one schema a line, compact as Python's json.dumps writes it. Training, evaluation and serving render through the same
// Renderer, and ToolsInSystemPrompt lets a run say so.
//
// # Special tokens
//
// What the template writes is markup, what messages and schemas hold is text: a special token that a content spells, or another added
// token with which the template writes roles, has the ids of its characters (Options.Markup recognises it). A turn is closed by the token that the template closes it with; a completion that ends with
// another stop token gets the template's in the observation.
//
// # Masks
//
//	token ids      p0 p1 p2 | r3 r4 r5 | o6 o7 | r8      T = 9
//	response mask   0  0  0 |  1  1  1 |  0  0 |  1      [T]
//	logits used     -  - p2 | r3 r4  - |  - o7 |  -      the trainer's rows: token t is predicted at position t-1
//
// Exactly the tokens of the response mask are trained (package policy makes a row of each).
//
// A Renderer is safe for concurrent use if its Encoder is.
//
// It does not sample, parse what a model wrote (package agents does) or decide what a loss counts beyond responses
// (package trainer does).
package masks
