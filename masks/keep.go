package masks

import "slices"

// specials is what DecodeKeeping needs of a tokenizer.
type specials interface {
	Encode(text string) []int32
	Decode(ids []int32, skipSpecial bool) string
	IsSpecial(id int32) bool
}

// Kept are the ids of the special tokens among texts.
func Kept(t specials, texts []string) []int32 {
	var out []int32
	for _, text := range texts {
		if ids := t.Encode(text); len(ids) == 1 && t.IsSpecial(ids[0]) {
			out = append(out, ids[0])
		}
	}
	return out
}

// DecodeKeeping decodes ids without their special tokens but kept: those with which a model begins a call are text to whoever reads it.
func DecodeKeeping(t specials, ids, kept []int32) string {
	if len(kept) == 0 {
		return t.Decode(ids, true)
	}
	rest := make([]int32, 0, len(ids))
	for _, id := range ids {
		if !t.IsSpecial(id) || slices.Contains(kept, id) {
			rest = append(rest, id)
		}
	}
	return t.Decode(rest, false)
}
