package rollouttest

import "strings"

// Letters is a tokenizer of bytes: the id of a token is its byte, and two special tokens follow.
type Letters struct{}

// The special tokens of Letters.
const (
	Start = 256 // <|im_start|>
	End   = 257 // <|im_end|>
)

// ChatML is a chat template that writes these tokens.
const ChatML = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

func (Letters) Encode(text string) []int32 {
	var out []int32
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "<|im_start|>"):
			out, text = append(out, Start), text[len("<|im_start|>"):]
		case strings.HasPrefix(text, "<|im_end|>"):
			out, text = append(out, End), text[len("<|im_end|>"):]
		default:
			out, text = append(out, int32(text[0])), text[1:]
		}
	}
	return out
}

func (l Letters) EncodeMarked(text, mark string) []int32 {
	var out []int32
	for _, part := range strings.Split(text, mark) { // a mark stands between two bytes of what it interrupts
		out = append(out, l.Encode(part)...)
	}
	return out
}

func (Letters) Specials() []string { return []string{"<|im_start|>", "<|im_end|>"} }

func (Letters) OtherAdded() []string { return nil }

func (Letters) ID(token string) (int32, bool) {
	id, ok := map[string]int32{"<|im_start|>": Start, "<|im_end|>": End}[token]
	return id, ok
}

func (Letters) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id < 256:
			b.WriteByte(byte(id))
		case skipSpecial:
		case id == Start:
			b.WriteString("<|im_start|>")
		default:
			b.WriteString("<|im_end|>")
		}
	}
	return b.String()
}
