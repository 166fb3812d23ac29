package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// probe is text whose tokens show how a tokenizer cuts: cases, digits, white space, punctuation, scripts.
const probe = "The quick brown fox, 12345 times:\n\n\tdef f(x): return x+1  # ünïcödé — 中文 テスト 😀\r\n<|im_start|>'s don't WON'T http://a.b/c?d=e"

// Fingerprint is a SHA-256 of what turns messages into token ids: every token with its id, how a probe text is cut, the
// chat templates and the stop ids. Recorded token ids mean the same to two models if their fingerprints are equal, whatever
// files they came from.
func (t *Text) Fingerprint() string {
	h := sha256.New()
	for id := range t.Tokenizer.Size() {
		text, ok := t.Tokenizer.Token(int32(id))
		fmt.Fprintf(h, "%d %v %v %q\n", id, ok, t.Tokenizer.IsSpecial(int32(id)), text)
	}
	fmt.Fprintf(h, "%v\n%q\n%v\n", t.Tokenizer.Encode(probe), t.ChatTemplate, t.StopIDs)
	if t.ToolUse != "" {
		fmt.Fprintf(h, "%q\n", t.ToolUse)
	}
	return hex.EncodeToString(h.Sum(nil))
}
