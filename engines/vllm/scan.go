package vllm

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/agentfly/agentfly/engines"
)

// What is here does for the hot request and reply of /inference/v1/generate what encoding/json does for all others: at some
// thousand turns a second, reflection over lists of ids and logprobs is what a rollout would spend most of its time on.

// appendNative appends the body of a completion: what json.Marshal makes of nativeRequest and samplingParams, in another order.
// logprobs is how many of a token the reply shall list.
func appendNative(b []byte, model string, prompt []int32, s engines.Sampling, seed uint64, logprobs int) []byte {
	b = append(b, `{"token_ids":`...)
	b = appendIDs(b, prompt)
	if model != "" {
		b = append(b, `,"model":`...)
		b = appendString(b, model)
	}
	topP, topK, minP := s.TopP, s.TopK, s.MinP
	if s.Temperature == 0 { // as in samplingParams
		topP, topK, minP = 1, 0, 0
	}
	b = append(b, `,"stream":false,"sampling_params":{"max_tokens":`...)
	b = strconv.AppendInt(b, int64(s.MaxTokens), 10)
	b = appendFloat(append(b, `,"temperature":`...), s.Temperature)
	b = appendFloat(append(b, `,"top_p":`...), topP)
	b = strconv.AppendInt(append(b, `,"top_k":`...), int64(topK), 10)
	b = appendFloat(append(b, `,"min_p":`...), minP)
	b = strconv.AppendUint(append(b, `,"seed":`...), seed&maxSeed, 10)
	b = appendIDs(append(b, `,"stop_token_ids":`...), s.StopIDs)
	b = append(b, `,"stop":[`...)
	for i, text := range s.Stop {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, text)
	}
	b = strconv.AppendInt(append(b, `],"n":1,"logprobs":`...), int64(logprobs), 10)
	b = appendFloat(append(b, `,"ignore_eos":true,"presence_penalty":`...), s.Presence)
	b = appendFloat(append(b, `,"frequency_penalty":`...), s.Frequency)
	b = appendFloat(append(b, `,"repetition_penalty":`...), repetition(s))
	b = strconv.AppendInt(append(b, `,"min_tokens":`...), int64(s.MinTokens), 10)
	return append(b, `,"skip_special_tokens":false,"spaces_between_special_tokens":false,"include_stop_str_in_output":true}}`...)
}

func appendIDs(b []byte, ids []int32) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}

func appendFloat(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'g', -1, 64) }

// appendString quotes a text. What is not UTF-8 becomes U+FFFD, as encoding/json has it.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	return append(b, '"')
}

// scanNative reads a reply of /inference/v1/generate that holds one choice with logprobs, and no prompt logprobs. ok false says
// nothing of the reply: whatever is unusual in it is left to encoding/json, and so is what is wrong with it. tops: what it lists of each token is read too.
func scanNative(data []byte, tops bool) (r reply, ok bool) {
	s := &scanner{data: data, ok: true}
	var seen seen
	var named []int32 // the ids that the logprobs name
	choices := 0
	for more := s.begin('{', '}'); more; more = s.more('}') {
		switch string(s.key()) {
		case "choices":
			s.once(&seen, 1)
			for more := s.begin('[', ']'); more; more = s.more(']') {
				choices++
				named = scanChoice(s, &r, tops)
			}
		case "prompt_logprobs":
			s.once(&seen, 2)
			s.ok = s.isNull()
		case "usage":
			s.once(&seen, 4)
			r.cached = scanUsage(s)
		default:
			s.skip(0)
		}
	}
	s.space()
	return r, s.ok && s.at == len(data) && choices == 1 && r.logprobs != nil && slices.Equal(named, r.ids)
}

// scanUsage is the number of cached tokens.
func scanUsage(s *scanner) (cached int) {
	var seen seen
	for more := s.begin('{', '}'); more; more = s.more('}') {
		if string(s.key()) != "prompt_tokens_details" {
			s.skip(0)
			continue
		}
		s.once(&seen, 1)
		if s.isNull() {
			continue
		}
		for more := s.begin('{', '}'); more; more = s.more('}') {
			if string(s.key()) != "cached_tokens" {
				s.skip(0)
			} else if s.once(&seen, 2); !s.isNull() {
				cached = int(s.integer())
			}
		}
	}
	return cached
}

// scanChoice fills in r and returns the ids that the logprobs name.
func scanChoice(s *scanner, r *reply, tops bool) (named []int32) {
	var seen seen
	for more := s.begin('{', '}'); more; more = s.more('}') {
		switch string(s.key()) {
		case "token_ids":
			s.once(&seen, 1)
			r.ids = make([]int32, 0, max(32, len(named)))
			for more := s.begin('[', ']'); more; more = s.more(']') {
				r.ids = append(r.ids, s.integer())
			}
		case "logprobs":
			s.once(&seen, 2)
			for more := s.begin('{', '}'); more; more = s.more('}') {
				if string(s.key()) != "content" {
					s.skip(0)
					continue
				}
				s.once(&seen, 4)
				named, r.logprobs = make([]int32, 0, max(32, len(r.ids))), make([]float32, 0, max(32, len(r.ids)))
				for more := s.begin('[', ']'); more; more = s.more(']') {
					id, value, list := scanLogprob(s, tops)
					named, r.logprobs = append(named, id), append(r.logprobs, float32(value))
					if tops {
						r.top = append(r.top, list)
					}
				}
			}
		case "finish_reason":
			s.once(&seen, 8)
			r.reason = string(s.plain())
		case "weight_versions":
			s.once(&seen, 16)
			if s.isNull() {
				continue
			}
			r.spans = []span{}
			for more := s.begin('[', ']'); more; more = s.more(']') {
				r.spans = append(r.spans, scanSpan(s))
			}
		default:
			s.skip(0)
		}
	}
	return named
}

// scanLogprob reads a token; list is what is listed beside it, nil where tops is not set.
func scanLogprob(s *scanner, tops bool) (id int32, value float64, list []engines.Alternative) {
	var seen seen
	for more := s.begin('{', '}'); more; more = s.more('}') {
		switch string(s.key()) {
		case "token_id":
			s.once(&seen, 1)
			id = s.integer()
		case "logprob":
			s.once(&seen, 2)
			value = s.number()
		case "top_logprobs":
			if !tops {
				s.skip(0)
				continue
			}
			s.once(&seen, 4)
			list = make([]engines.Alternative, 0, 32)
			for more := s.begin('[', ']'); more; more = s.more(']') {
				id, value, _ := scanLogprob(s, false)
				list = append(list, engines.Alternative{ID: id, Logprob: float32(value)})
			}
		default:
			s.skip(0)
		}
	}
	s.ok = s.ok && seen&3 == 3 && (list != nil || !tops)
	return id, value, list
}

func scanSpan(s *scanner) (out span) {
	var seen seen
	for more := s.begin('{', '}'); more; more = s.more('}') {
		switch string(s.key()) {
		case "version":
			s.once(&seen, 1)
			out.Version = string(s.plain())
		case "start":
			s.once(&seen, 2)
			out.Start = int(s.integer())
		case "end":
			s.once(&seen, 4)
			out.End = int(s.integer())
		default:
			s.skip(0)
		}
	}
	return out
}
