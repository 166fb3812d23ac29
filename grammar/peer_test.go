package grammar_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/masks/tokenizer"
)

// peer is another library's masks: scripts/grammar_peer.py.
type peer struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
	eos int32
}

type peerMask struct {
	Mask, Forced []byte
	End          bool
	Error        string
}

// startPeer needs a Python with llguidance, AGENTFLY_LLGUIDANCE (scripts/test_grammar.sh makes one).
func startPeer(t *testing.T, folder string) *peer {
	python := os.Getenv("AGENTFLY_LLGUIDANCE")
	if python == "" {
		t.Skip("AGENTFLY_LLGUIDANCE names no Python with llguidance; make test-grammar installs one")
	}
	cmd := exec.Command(python, "../scripts/grammar_peer.py", filepath.Join(folder, "tokenizer.json"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	p := &peer{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	var hello struct{ Eos int32 }
	p.read(&hello)
	p.eos = hello.Eos
	return p
}

func (p *peer) read(v any) {
	p.t.Helper()
	line, err := p.out.ReadBytes('\n')
	require.NoError(p.t, err, "the peer ended")
	require.NoError(p.t, json.Unmarshal(line, v))
}

func (p *peer) ask(key string, value any) (out peerMask) {
	p.t.Helper()
	line, err := json.Marshal(map[string]any{key: value})
	require.NoError(p.t, err)
	_, err = p.in.Write(append(line, '\n'))
	require.NoError(p.t, err)
	p.read(&out)
	return out
}

func (m peerMask) has(id int32) bool {
	return int(id/8) < len(m.Mask) && m.Mask[id/8]>>(id%8)&1 != 0
}

// peerTokenizer is the tokenizer's folder, AGENTFLY_GRAMMAR_TOKENIZER, or Qwen3's, which the tests of masks/tokenizer fetch.
func peerTokenizer(t *testing.T) string {
	if folder := os.Getenv("AGENTFLY_GRAMMAR_TOKENIZER"); folder != "" {
		return folder
	}
	folder, err := home.Cache("tokenizers", "qwen3")
	require.NoError(t, err)
	return folder
}

// peerPatterns are held to be equal in every mask.
var peerPatterns = []string{
	`[a-c]{3}-[0-9]+x`, `(yes|no|maybe so)`, `.{0,5}`, `[^a]b?`, `[A-Za-z0-9_]+ [0-9]`, `(a|bc)*d`, `é{2,}(x|日本)?`, `(?i)hello|world`, `[\u4e00-\u9fff]{1,3}`, `a{2,5}b{0,3}`, `[ \n]*[0-9a-f]{8}`,
	`((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])[.]){3}(25[0-5]|[1-9]?[0-9])`, `[😀-😎]+`, `(ab?c|a.c)+`, `x*`, `\{"a": [0-9]+\}`,
}

// peerSchemas stand beside those that chance draws.
var peerSchemas = []string{
	`{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"enum": ["a", "b", "cd"]}, "minItems": 1, "maxItems": 3}}, "required": ["name", "tags"], "additionalProperties": false}`,
	`{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false}}}`,
	`{"type": "number", "minimum": -12, "exclusiveMaximum": 100}`,
	`{"type": "integer", "exclusiveMinimum": -7, "maximum": 1234}`,
	`{"type": "string", "pattern": "^[A-Z]{2}-\\d{3,4}$"}`,
	`{"type": "string", "format": "date"}`, `{"type": "string", "format": "ipv4"}`,
	`{"type": "string", "minLength": 2, "maxLength": 5}`,
	`{"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 4}`,
	`{"type": "object", "additionalProperties": {"type": "boolean"}}`,
	`{"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "null"}}, "additionalProperties": {"type": "boolean"}}`,
	`{"type": "object"}`, `{}`, `{"type": "array"}`,
	`{"enum": ["a\"b", "é", "日本", 1, 1.5, null, {"x": [1, "y"]}, "\n"]}`, `{"const": {"a": ["\u0001", "😀"]}}`,
	`{"type": ["string", "null", "integer"]}`, `{"anyOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind"], "additionalProperties": false}, {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"], "additionalProperties": false}]}`,
}

// What differs in JSON by design. wider is what llguidance alone writes: other blanks, escapes where a shorter form is, more
// digits, -0 within bounds (long); narrower is what it leaves out: the character DEL, added tokens that look
// like tags, escapes of more than a few characters. Behind a blank or a backslash, both
// have what the other has not.
var (
	wider    = regexp.MustCompile(`[\s\\]`)
	long     = regexp.MustCompile(`[0-9]{20}|[eE][-+]?[0-9]{3}|-0`)
	narrower = regexp.MustCompile(`[\\\x7f]|^<.*>$`)
	spaced   = regexp.MustCompile(`[\s\\]$|\\u[0-9a-fA-F]{0,3}$`)
)

// The masks are those of llguidance, token by token of a real vocabulary, along walks by chance: of a regular expression the same, of a
// schema none that llguidance has not, and of the others those alone that this package leaves out on purpose.
func TestMasksAgreeWithLLGuidance(t *testing.T) {
	folder := peerTokenizer(t)
	p := startPeer(t, folder)
	tok, err := tokenizer.Load(folder)
	require.NoError(t, err)
	v := grammar.NewVocabulary(tok)
	r := rand.New(rand.NewPCG(21, 22))
	words, closes := make([][]byte, tok.Size()), make([]bool, tok.Size())
	for id := range words {
		words[id] = tok.Bytes(int32(id))
		closes[id] = bytes.ContainsAny(words[id], `"}],`)
	}
	var ours, theirs time.Duration
	masks, compared, refused, left := 0, 0, 0, map[string]int{}
	walk := func(kind, source string, e grammar.Expr) {
		g, err := grammar.Compile(e, v)
		require.NoError(t, err, source)
		for range 2 {
			begun := time.Now()
			mask := p.ask(kind, source)
			if mask.Error != "" {
				refused++
				t.Logf("llguidance refuses %s: %s", source, strings.SplitN(mask.Error, "\n", 2)[0])
				return
			}
			theirs += time.Since(begun)
			m, text := g.Match(), ""
			for range 25 {
				begun = time.Now()
				allowed, end, err := m.Allowed()
				ours += time.Since(begun)
				require.NoError(t, err, "%s behind %q", source, text)
				masks++
				if mask.End != end {
					left["the end of "+source]++
					t.Logf("%s: the end behind %q: %v, llguidance %v", source, text, end, mask.End)
				}
				var next, closing []int32
				for id := range int32(tok.Size()) {
					if id == p.eos {
						continue
					}
					here := has(allowed, id)
					if here {
						next = append(next, id)
						if closes[id] {
							closing = append(closing, id)
						}
					}
					there := mask.has(id)
					if here != there {
						forced := len(mask.Forced) > 0 && (bytes.HasPrefix(mask.Forced, words[id]) || bytes.HasPrefix(words[id], mask.Forced))
						if here && forced {
							continue
						}
						if kind == "schema" && (here && narrower.Match(words[id]) || !here && (wider.Match(words[id]) || long.MatchString(text+string(words[id]))) || spaced.MatchString(text)) {
							continue
						}
						{
							who := "llguidance"
							if here {
								who = "this package"
							}
							what := fmt.Sprintf("%s: only %s allows", source, who)
							if left[what]++; left[what] < 6 {
								t.Logf("%s %q behind %q", what, words[id], text)
							}
						}
					}
					compared++
				}
				if len(next) == 0 || end && r.IntN(3) == 0 {
					break
				}
				if len(closing) > 0 && r.IntN(3) == 0 {
					next = closing
				}
				id := next[r.IntN(len(next))]
				require.NoError(t, m.Take(id))
				text += string(words[id])
				begun = time.Now()
				mask = p.ask("take", id)
				theirs += time.Since(begun)
				if mask.Error != "" {
					break
				}
			}
		}
	}
	for _, pattern := range peerPatterns {
		written := regexp.MustCompile(`\\u([0-9a-f]{4})`).ReplaceAllString(pattern, `\x{$1}`)
		e, err := grammar.Regexp(written)
		require.NoError(t, err, pattern)
		walk("regex", written, e)
	}
	for i := range 30 + len(peerSchemas) {
		schema := ""
		if i < len(peerSchemas) {
			schema = peerSchemas[i]
		} else {
			schema = someSchema(r, 2).schema
		}
		e, err := grammar.JSONSchema([]byte(schema))
		require.NoError(t, err, schema)
		walk("schema", schema, e)
	}
	t.Logf("%d masks of %d tokens compared; ours took %v, llguidance %v with the transport; refused by llguidance: %d", masks, compared/masks, ours, theirs, refused)
	require.Empty(t, left, "differences that are not explained")
}
