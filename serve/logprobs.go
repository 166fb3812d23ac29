package serve

import (
	"strconv"
	"unicode/utf8"

	"github.com/agentfly/agentfly/engines"
)

// least is vLLM's stand-in for minus infinity, which JSON cannot write.
const least = -9999.0

func number(logprob float32) float64 { return max(float64(logprob), least) + 0 } // minus zero becomes zero

// speller writes tokens one by one.
type speller struct {
	tokenizer Tokenizer
	asID      bool // as token_id:N
}

// spell writes a token alone: its text, or token_id:N where the request wants that.
func (s speller) spell(id int32) string {
	if s.asID {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return s.tokenizer.Decode([]int32{id}, false)
}

// completionLogprobs is the form of /v1/completions.
type completionLogprobs struct {
	Offsets  []int                `json:"text_offset"`
	Logprobs []*float64           `json:"token_logprobs"`
	Tokens   []string             `json:"tokens"`
	Top      []map[string]float64 `json:"top_logprobs"`
}

// add appends tokens whose first begins at offset, and returns the offset after them. As in vLLM an entry of top_logprobs
// holds the sampled token and the most likely ones.
func (l *completionLogprobs) add(s speller, tokens []engines.Token, offset int) int {
	for _, t := range tokens {
		text, value := s.spell(t.ID), number(t.Logprob)
		top := map[string]float64{text: value}
		for _, a := range t.Top {
			if name := s.spell(a.ID); a.ID != t.ID {
				if _, taken := top[name]; !taken {
					top[name] = number(a.Logprob)
				}
			}
		}
		l.Offsets, l.Tokens = append(l.Offsets, offset), append(l.Tokens, text)
		l.Logprobs, l.Top = append(l.Logprobs, &value), append(l.Top, top)
		offset += utf8.RuneCountInString(text)
	}
	return offset
}

// prompt appends the tokens of an echoed prompt; the first has no logprob.
func (l *completionLogprobs) prompt(s speller, ids []int32, logprobs []float32) int {
	offset := 0
	for i, id := range ids {
		if i > 0 {
			offset = l.add(s, []engines.Token{{ID: id, Logprob: logprobs[i-1]}}, offset)
			continue
		}
		text := s.spell(id)
		l.Offsets, l.Tokens = append(l.Offsets, 0), append(l.Tokens, text)
		l.Logprobs, l.Top = append(l.Logprobs, nil), append(l.Top, nil)
		offset = utf8.RuneCountInString(text)
	}
	return offset
}

// chatLogprobs is the form of /v1/chat/completions.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	chatToken
	Top []chatToken `json:"top_logprobs"`
}

type chatToken struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (s speller) chatToken(id int32, logprob float32) chatToken {
	t := chatToken{Token: s.spell(id), Logprob: number(logprob), Bytes: []int{}}
	for _, b := range s.tokenizer.Bytes(id) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}

func (s speller) chat(tokens []engines.Token) *chatLogprobs {
	out := &chatLogprobs{Content: []chatLogprob{}}
	for _, t := range tokens {
		entry := chatLogprob{s.chatToken(t.ID, t.Logprob), []chatToken{}}
		for _, a := range t.Top {
			entry.Top = append(entry.Top, s.chatToken(a.ID, a.Logprob))
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

// tokenLogprobs is the form of /inference/v1/generate: ids alone, the sampled one first in top_logprobs.
type tokenLogprobs struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	idLogprob
	Top []idLogprob `json:"top_logprobs"`
}

type idLogprob struct {
	ID      int32   `json:"token_id"`
	Logprob float64 `json:"logprob"`
}

func idLogprobs(tokens []engines.Token) *tokenLogprobs {
	out := &tokenLogprobs{Content: []tokenLogprob{}}
	for _, t := range tokens {
		own := idLogprob{t.ID, number(t.Logprob)}
		entry := tokenLogprob{own, []idLogprob{own}}
		for _, a := range t.Top {
			if a.ID != t.ID {
				entry.Top = append(entry.Top, idLogprob{a.ID, number(a.Logprob)})
			}
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

// promptLogprob is an entry of prompt_logprobs: null for the first token, then an object keyed by the token's id.
type promptLogprob map[string]struct {
	Logprob float64 `json:"logprob"`
	Decoded string  `json:"decoded_token"`
}

// prompt tells the tokens of a prompt; the first has no logprob.
func (s speller) prompt(ids []int32, logprobs []float32) []promptLogprob {
	out := []promptLogprob{nil}
	for i, id := range ids[1:] {
		out = append(out, promptLogprob{strconv.Itoa(int(id)): {number(logprobs[i]), s.spell(id)}})
	}
	return out
}
