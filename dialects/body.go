package dialects

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Decode reads the body of a request, one JSON object, into v; members that v does not have are ignored.
func Decode(body []byte, v any) error {
	if !utf8.Valid(body) {
		return badf("", "the request is not valid UTF-8")
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return badf("", "the request must be a JSON object")
	}
	return decodeAt("", body, v)
}

// decodeAt reads a value of a request; at names it in errors.
func decodeAt(at string, data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var kind *json.UnmarshalTypeError
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.As(err, &kind):
		field := "." + kind.Field
		for _, name := range embedded {
			field = strings.ReplaceAll(field, "."+name+".", ".")
		}
		if field = strings.Trim(at+field, "."); field == "" {
			field = "the request"
		}
		return badf(field, "%s: a JSON %s does not fit, %s is needed", field, kind.Value, kindName(kind.Type))
	}
	return badf(at, "%s is not JSON: %v", strings.TrimSpace("the request "+at), wording.JSONReason(err))
}

// embedded are the structs within those of requests; their names are in no request.
var embedded = [...]string{"parameters", "sampling"}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a " + t.Kind().String()
}

// maxList is how many elements a list has at most: as what Go makes of them they take many times their text.
const maxList = 1 << 16

// List is a list whose elements are read later. Null is nil.
type List []json.RawMessage

// UnmarshalJSON reads element by element, up to the limit.
func (l *List) UnmarshalJSON(data []byte) error {
	*l = nil // of a repeated key the last counts
	if data[0] != '[' {
		var out []json.RawMessage
		return json.Unmarshal(data, &out)
	}
	*l = List{}
	data = bytes.Clone(data) // it belongs to the caller
	for at := skipSpace(data, 1); data[at] != ']'; {
		if len(*l) == maxList {
			return badf("", "a list has more than %d elements", maxList)
		}
		end := skipValue(data, at)
		*l = append(*l, data[at:end:end])
		if at = skipSpace(data, end); data[at] == ',' {
			at = skipSpace(data, at+1)
		}
	}
	return nil
}

// given tells whether a value says something: it is there, and not null, false or empty.
func given(data json.RawMessage) bool {
	var short bytes.Buffer
	if len(data) <= 64 {
		_ = json.Compact(&short, data) // it was read as JSON before
		data = short.Bytes()
	}
	switch string(data) {
	case "", "null", "false", "{}", "[]", `""`:
		return false
	}
	return true
}

// finish sets what every dialect's request has of its body: the parameters and the digest. conversation names the members that are none.
func (q *Request) finish(body []byte, conversation ...string) error {
	asked := members(body)
	for _, name := range conversation {
		delete(asked, name)
	}
	var err error
	if q.Asked, err = wording.JSON(asked); err != nil {
		return badf("", "the request is not JSON: %v", err)
	}
	var e *Error
	if q.Digest, e = digest(body, "stream", "stream_options", "client_metadata"); e != nil {
		return e
	}
	return nil
}

// members are those of a valid JSON object, as they are written in it.
func members(body []byte) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for at := skipSpace(body, skipSpace(body, 0)+1); body[at] != '}'; {
		key, _ := unquote(body, at)
		value := skipSpace(body, skipSpace(body, skipValue(body, at))+1)
		end := skipValue(body, value)
		out[key] = body[value:end:end]
		if at = skipSpace(body, end); body[at] == ',' {
			at = skipSpace(body, at+1)
		}
	}
	return out
}

// limit is a number of tokens to sample; nil: the client does not say.
func limit(param string, v *Whole) (*int, error) {
	if v != nil && *v < 1 {
		return nil, badf(param, "%s is %d, it must be at least 1", param, *v)
	}
	return (*int)(v), nil
}

// pieces are the parts of a message while it is read.
type pieces struct {
	parts []trajectory.Part
	media bool
}

func (p *pieces) text(s string) {
	if s != "" {
		p.parts = append(p.parts, trajectory.Part{Type: "text", Text: s})
	}
}

func (p *pieces) image(url string) {
	p.parts, p.media = append(p.parts, trajectory.Part{Type: "image", Image: url}), true
}

// content is what the message says. Texts without an image among them become one, with sep between them: most chat templates read content
// as a text. (vLLM does so too, with a line end.)
func (p *pieces) content(sep string) []trajectory.Part {
	if p.media || len(p.parts) < 2 {
		return p.parts
	}
	texts := make([]string, len(p.parts))
	for i, part := range p.parts {
		texts[i] = part.Text
	}
	return []trajectory.Part{{Type: "text", Text: strings.Join(texts, sep)}}
}

// separator stands between the texts of one message. Those of the assistant are pieces of one completion.
func separator(role string) string {
	if role == "assistant" {
		return ""
	}
	return "\n"
}

// arguments of a call as a client wrote them: JSON stays as it is, what is none becomes a JSON string, and nothing is an empty object.
func arguments(text string) json.RawMessage {
	if strings.TrimSpace(text) == "" {
		return json.RawMessage(`{}`)
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := wording.JSON(text) // never fails
	return quoted
}

// argumentsText is what arguments read.
func argumentsText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "{}"
	}
	if raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) == nil && !json.Valid([]byte(s)) {
			return s
		}
	}
	return string(raw)
}
