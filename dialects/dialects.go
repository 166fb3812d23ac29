// Package dialects reads requests and writes replies in the forms of the APIs that agents speak: OpenAI's chat completions, completions and
// Responses, and Anthropic's Messages. A dialect turns a body into a Request, whose conversation has the same form whatever the dialect, and a
// Reply into a body or into server-sent events.
//
//	body ─► Dialect.Parse ─► Request ─► (who samples) ─► Reply ─► Dialect.Whole, or Dialect.Stream ─► bytes
//
// It does not sample, render tokens or keep conversations: packages serve and gateway do. What a dialect cannot express it leaves out; what it
// cannot honour is an *Error that names the field.
package dialects

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// Request is what a client asks for.
type Request struct {
	Model    string               // as the client names it; "": it names none
	Messages []trajectory.Message // the conversation, in OpenAI's roles: developer is system. Of a completion, none
	Param    string               // what the client calls Messages: messages or input; "" of a completion
	Prompt   Prompt               // of a completion; zero for conversations
	Tools    []json.RawMessage    // OpenAI's schemas, {"type": "function", "function": {…}}; nil: none, also where the client sent an empty list
	Choice   Choice               // of tools
	Parallel bool                 // several calls in one reply are welcome; true where the client does not say
	Format   *Schema              // that the reply must have; nil: free text

	MaxTokens   *int // to sample; nil: the client does not say
	MinTokens   int
	N           int // choices; 1 where the client does not say
	Temperature *float64
	TopP        *float64
	TopK        *int
	MinP        *float64
	Stop        []string
	Seed        *int64
	Presence    float64 // penalties: 0, 0 and 1 are none
	Frequency   float64
	Repetition  float64
	Logprobs    bool
	TopLogprobs int

	Stream      bool
	StreamUsage bool // usage in the stream's end, where the dialect leaves the choice to the client

	Asked  json.RawMessage // what the client asked for beside the conversation: its parameters, one JSON object with sorted keys
	Digest [32]byte        // of the canonical body: equal for the same request sent again, in whatever order of keys, streamed or not

	spaces  map[string]space // of Responses: tools of a namespace, by the names in Tools
	repeats object           // of Responses: parameters as they were sent, which its reply repeats
}

// Prompt is the prompt of a completion: a text or token ids.
type Prompt struct {
	Text string
	IDs  []int32 // nil: Text
}

// Choice says which tools the reply must or may call.
type Choice struct {
	Mode ChoiceMode
	Name string // of the tool, with ChoiceNamed
}

// MustCall tells whether the reply must be a call.
func (c Choice) MustCall() bool { return c.Mode == ChoiceRequired || c.Mode == ChoiceNamed }

// ChoiceMode is auto, none, required or named.
type ChoiceMode string

// The modes of a choice of tools.
const (
	ChoiceAuto     ChoiceMode = "auto"
	ChoiceNone     ChoiceMode = "none"
	ChoiceRequired ChoiceMode = "required" // some call
	ChoiceNamed    ChoiceMode = "named"    // a call of one tool
)

// Schema is the form that a reply must have.
type Schema struct {
	Param  string // what the client calls it: response_format, text.format, output_config.format or output_format
	Name   string
	Schema json.RawMessage // a JSON schema; nil: any JSON object
	Strict bool
}

// Reply is a whole completion as its client reads it.
type Reply struct {
	ID        string // unique; a dialect puts its own prefix before it
	Model     string
	Created   time.Time
	Reasoning string // what a thinking model wrote before its content; "": nothing
	Content   string
	Calls     []trajectory.ToolCall // with ids
	Finish    Finish
	Stop      string // the stop string that ended it; "": none
	Usage     Usage
}

// Finish says why a reply ended.
type Finish string

// The reasons; each dialect has its own words for them.
const (
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
	FinishCalls  Finish = "calls"  // it stopped with calls
	FinishBudget Finish = "budget" // nothing was sampled: the session's budget is spent
)

// Usage counts tokens.
type Usage struct {
	Prompt, Cached, Completion, Reasoning int
}

// Piece is a part of a reply that is streamed: exactly one field is set.
type Piece struct {
	Reasoning string
	Content   string
	Call      *trajectory.ToolCall // whole, with its id
}

// Writer writes one reply as server-sent events. Its methods belong to one goroutine; an error is the connection's.
type Writer interface {
	// Ping keeps the connection alive before and between pieces; it says nothing to the client. The first one sends the status and headers.
	Ping() error
	Piece(p Piece) error
	// End writes the last events; what they say is finish, stop and usage of r. The pieces were told before.
	End(r Reply) error
	// Fail ends the stream with an error, or answers with its status where nothing was sent before.
	Fail(err error)
}

// Dialect is one API. All methods are safe for concurrent use.
type Dialect interface {
	Name() string // chat, completions, responses, messages
	// Parse reads the body of a request. Fields that it does not know are ignored. Errors are *Error.
	Parse(h http.Header, body []byte) (*Request, error)
	// Whole is the body of a reply that is not streamed.
	Whole(q *Request, r Reply) ([]byte, error)
	// Stream begins a streamed reply; nothing is sent before the writer's first call. base has the reply's ID, Model, Created and Usage.Prompt.
	Stream(w http.ResponseWriter, q *Request, base Reply) Writer
	// Fail answers with an error in the dialect's form.
	Fail(w http.ResponseWriter, err error)
}

// Error is an error with its HTTP status; the client reads its message.
type Error struct {
	Status  int
	Message string // one line: what, where, what to do
	Param   string // the field; "": none
	Code    string // a word that programs tell errors apart by, such as context_length_exceeded; "": none

	Limit, Tokens int // of Overflow; 0 for others
}

func (e *Error) Error() string { return e.Message }
