package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// Vocabulary is what a GGUF file says about its tokenizer: the keys tokenizer.ggml.*.
type Vocabulary struct {
	Model  string    // tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
	Pre    string    // tokenizer.ggml.pre: the kind of pre-tokenizer; not used for "llama"
	Tokens []string  // by id
	Types  []int32   // by id, TypeNormal...; nil counts as all normal
	Merges []string  // "a b" by rank; of model "gpt2"
	Scores []float32 // by id; of model "llama"

	BOS, EOS, UNK, PAD int32 // -1: none
	AddBOS             bool
	// AddSpacePrefix is tokenizer.ggml.add_space_prefix of model "llama"; nil, where the key is absent, is true.
	AddSpacePrefix *bool
}

// Types of a token in a GGUF vocabulary.
const (
	TypeNormal      = 1
	TypeUnknown     = 2
	TypeControl     = 3
	TypeUserDefined = 4
	TypeUnused      = 5
	TypeByte        = 6
)

// preKind is what a tokenizer.ggml.pre stands for: the parts of the tokenizer.json of the models that use it.
type preKind struct {
	normalizer   string
	preTokenizer string
	ignoreMerges bool
}

// byteLevelJSON is a ByteLevel part; its other two fields concern offsets only.
func byteLevelJSON(useRegex bool) string {
	return fmt.Sprintf(`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":%t}`, useRegex)
}

func splitJSON(regex string) string {
	return `{"type":"Split","pattern":{"Regex":` + quote(regex) + `},"behavior":"Isolated","invert":false}`
}

func sequenceJSON(parts ...string) string {
	return `{"type":"Sequence","pretokenizers":[` + strings.Join(parts, ",") + `]}`
}

func preKindOf(pre string) (preKind, error) {
	const digits = `{"type":"Digits","individual_digits":true}`
	switch pre {
	case "smollm":
		return preKind{"null", sequenceJSON(digits, byteLevelJSON(true)), false}, nil
	case "gpt-2":
		return preKind{"null", byteLevelJSON(true), false}, nil
	case "qwen2":
		return preKind{`{"type":"NFC"}`, sequenceJSON(splitJSON(patternQwen), byteLevelJSON(false)), false}, nil
	case "llama-bpe", "llama3", "llama-v3":
		return preKind{"null", sequenceJSON(splitJSON(patternCL100K), byteLevelJSON(false)), true}, nil
	case "tekken":
		return preKind{"null", sequenceJSON(splitJSON(patternTekken), byteLevelJSON(false)), true}, nil
	case "deepseek-llm":
		return preKind{"null", sequenceJSON(splitJSON(patternLineEnd), splitJSON(patternCased), splitJSON(patternMarks), splitJSON(patternSpacesAtEnd),
			splitJSON(patternCJKHangul), digits, byteLevelJSON(false)), false}, nil
	case "deepseek-coder":
		return preKind{"null", sequenceJSON(splitJSON(patternLineEnd), splitJSON(patternSpaceLetters), splitJSON(patternSpacePunct),
			splitJSON(patternCJKHangul), digits, byteLevelJSON(false)), false}, nil
	case "deepseek-v3":
		return preKind{"null", sequenceJSON(splitJSON(patternDigits3), splitJSON(patternCJK), splitJSON(patternDeepSeek), byteLevelJSON(false)), false}, nil
	}
	return preKind{}, fmt.Errorf("tokenizer: pre-tokenizer kind %q (tokenizer.ggml.pre) is not supported (smollm, gpt-2, qwen2, llama-bpe, tekken, deepseek-llm, deepseek-coder, deepseek-v3 are); use the model's tokenizer.json", pre)
}

// FromVocabulary makes the tokenizer of a GGUF file. It is the one of the Hugging Face model that the file was made
// from, as far as a GGUF records it: the white space flags of added tokens are not recorded and taken as unset.
func FromVocabulary(v Vocabulary) (*Tokenizer, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	var doc []byte
	var err error
	switch v.Model {
	case "gpt2":
		doc, err = v.byteLevelFile()
	case "llama":
		doc, err = v.metaspaceFile()
	default:
		err = fmt.Errorf("tokenizer: vocabulary model %q (tokenizer.ggml.model) is not supported (gpt2 and llama are)", v.Model)
	}
	if err != nil {
		return nil, err
	}
	return FromJSON(doc)
}

func (v *Vocabulary) check() error {
	if len(v.Tokens) == 0 || len(v.Tokens) > maxID {
		return fmt.Errorf("tokenizer: a vocabulary of %d tokens is not supported", len(v.Tokens))
	}
	if v.Types != nil && len(v.Types) != len(v.Tokens) {
		return fmt.Errorf("tokenizer: %d token types for %d tokens; the file is damaged", len(v.Types), len(v.Tokens))
	}
	seen := make(map[string]int, len(v.Tokens))
	for i, t := range v.Tokens {
		if !utf8.ValidString(t) {
			return fmt.Errorf("tokenizer: token %d (%q) is not valid UTF-8", i, t)
		}
		if k, again := seen[t]; again {
			return fmt.Errorf("tokenizer: tokens %d and %d are both %q", k, i, t)
		}
		seen[t] = i
	}
	for _, id := range []int32{v.BOS, v.EOS, v.UNK, v.PAD} {
		if id < -1 || int(id) >= len(v.Tokens) {
			return fmt.Errorf("tokenizer: special token id %d is outside a vocabulary of %d; the file is damaged", id, len(v.Tokens))
		}
	}
	return nil
}

func (v *Vocabulary) typeOf(id int) int32 {
	if v.Types == nil {
		return TypeNormal
	}
	return v.Types[id]
}

func (v *Vocabulary) byteLevelFile() ([]byte, error) {
	kind, err := preKindOf(v.Pre)
	if err != nil {
		return nil, err
	}
	pairs := make([][2]string, len(v.Merges))
	for i, m := range v.Merges {
		a, b, ok := strings.Cut(m, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("tokenizer: merge %d (%q): want two tokens with one space between", i, m)
		}
		pairs[i] = [2]string{a, b}
	}
	model := fmt.Sprintf(`"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,`+
		`"fuse_unk":false,"byte_fallback":false,"ignore_merges":%t`, kind.ignoreMerges)
	return v.file(kind.normalizer, kind.preTokenizer, byteLevelJSON(true), model, pairs), nil
}

// metaspaceFile is a Llama 2 kind. Its merges are made of the scores as in the published tokenizer.json of Llama 2:
// every way to cut a token into two tokens, the tokens by falling score, the ways by the ids of their parts.
func (v *Vocabulary) metaspaceFile() ([]byte, error) {
	if len(v.Scores) != len(v.Tokens) {
		return nil, fmt.Errorf("tokenizer: %d scores for %d tokens: a llama vocabulary needs one each", len(v.Scores), len(v.Tokens))
	}
	unk := "null"
	if v.UNK >= 0 {
		unk = quote(v.Tokens[v.UNK])
	}
	model := fmt.Sprintf(`"type":"BPE","dropout":null,"unk_token":%s,"continuing_subword_prefix":null,"end_of_word_suffix":null,`+
		`"fuse_unk":true,"byte_fallback":true,"ignore_merges":false`, unk)
	toMeta := `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`
	decode := `{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}`
	norm := toMeta
	if v.AddSpacePrefix == nil || *v.AddSpacePrefix {
		norm = `{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},` + toMeta + `]}`
		decode += `,{"type":"Strip","content":" ","start":1,"stop":0}`
	}
	return v.file(norm, "null", `{"type":"Sequence","decoders":[`+decode+`]}`, model, v.scoredMerges()), nil
}

func (v *Vocabulary) scoredMerges() [][2]string {
	ids := make(map[string]int, len(v.Tokens))
	order := make([]int, len(v.Tokens))
	for i, t := range v.Tokens {
		ids[t], order[i] = i, i
	}
	sort.SliceStable(order, func(i, k int) bool { return v.Scores[order[i]] > v.Scores[order[k]] })
	var out [][2]string
	for _, id := range order {
		token := v.Tokens[id]
		var cuts [][2]int
		for i := range token { // at the start of each character
			l, okL := ids[token[:i]]
			r, okR := ids[token[i:]]
			if i > 0 && okL && okR {
				cuts = append(cuts, [2]int{l, r})
			}
		}
		sort.Slice(cuts, func(i, k int) bool {
			return cuts[i][0] < cuts[k][0] || cuts[i][0] == cuts[k][0] && cuts[i][1] < cuts[k][1]
		})
		for _, c := range cuts {
			out = append(out, [2]string{v.Tokens[c[0]], v.Tokens[c[1]]})
		}
	}
	return out
}

// file writes a tokenizer.json of parts that are JSON already.
func (v *Vocabulary) file(normalizer, preTokenizer, decoder, model string, merges [][2]string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"version":"1.0","truncation":null,"padding":null,"added_tokens":[`)
	sep := ""
	for id, t := range v.Tokens {
		kind := v.typeOf(id)
		special := kind == TypeControl || kind == TypeUnknown
		if t == "" || !special && kind != TypeUserDefined {
			continue
		}
		fmt.Fprintf(&b, `%s{"id":%d,"content":%s,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":%t}`,
			sep, id, quote(t), special)
		sep = ","
	}
	fmt.Fprintf(&b, `],"normalizer":%s,"pre_tokenizer":%s,"post_processor":%s,"decoder":%s,"model":{%s,"vocab":{`,
		normalizer, preTokenizer, v.template(), decoder, model)
	sep = ""
	for id, t := range v.Tokens {
		fmt.Fprintf(&b, "%s%s:%d", sep, quote(t), id)
		sep = ","
	}
	b.WriteString(`},"merges":[`)
	sep = ""
	for _, m := range merges {
		fmt.Fprintf(&b, "%s[%s,%s]", sep, quote(m[0]), quote(m[1]))
		sep = ","
	}
	b.WriteString("]}}\n")
	return b.Bytes()
}

// template is the post-processor that puts the first token in front, if the file asks for it.
func (v *Vocabulary) template() string {
	if !v.AddBOS || v.BOS < 0 {
		return "null"
	}
	t := quote(v.Tokens[v.BOS])
	first := `{"SpecialToken":{"id":` + t + `,"type_id":0}},{"Sequence":{"id":"A","type_id":0}}`
	second := `{"SpecialToken":{"id":` + t + `,"type_id":1}},{"Sequence":{"id":"B","type_id":1}}`
	return fmt.Sprintf(`{"type":"TemplateProcessing","single":[%s],"pair":[%s,%s],"special_tokens":{%s:{"id":%s,"ids":[%d],"tokens":[%s]}}}`,
		first, first, second, t, t, v.BOS, t)
}

// quote is a JSON string without HTML escapes.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil { // cannot happen for a string
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}
