package modelfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Info is what `agentfly model info` tells of a model.
type Info struct {
	Path       string           `json:"path"`
	Format     string           `json:"format"`            // safetensors, gguf, or "" without weights
	Problem    string           `json:"problem,omitempty"` // why it cannot be trained or sampled here
	Config     *Config          `json:"-"`                 // nil when there is none or it is not supported
	Tensors    int              `json:"tensors"`
	Parameters int64            `json:"parameters"` // elements of all tensors
	Bytes      int64            `json:"bytes"`      // of the tensors as float32, which is what training holds once
	Types      map[string]int64 `json:"types"`      // elements by stored type
	Tokenizer  string           `json:"tokenizer"`  // tokenizer.json, GGUF's model and pre-tokenizer, or ""
	Vocabulary int              `json:"vocabulary"` // tokens of a GGUF's list; 0 for tokenizer.json, which is not parsed here
	Templates  []string         `json:"templates"`  // names of the chat templates
	Special    []string         `json:"special"`    // name=text, sorted
}

// Describe opens a model and tells what it is; what is missing or not supported becomes Problem, not an error.
func Describe(path string) (*Info, error) {
	m, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	i := &Info{Path: m.Path, Format: m.Format, Types: map[string]int64{}}
	problem := func(err error) {
		if err != nil && i.Problem == "" {
			i.Problem = strings.TrimPrefix(err.Error(), "modelfile: ")
		}
	}
	i.Config, err = m.Config()
	problem(err)
	for _, name := range m.Names() {
		info, _ := m.Info(name) // Names lists what Info knows
		n := int64(info.Elements())
		i.Tensors++
		i.Parameters += n
		i.Types[info.Type] += n
		if m.gguf != nil {
			if q := ggufTypes[m.gguf.tensors[m.store.(*ggufModel).original[name]].kind]; q.dequantise == nil {
				problem(fmt.Errorf("tensor type %s is not supported; supported are %s", q.name, supportedQuants))
			}
		}
	}
	i.Bytes = 4 * i.Parameters
	if !m.HasWeights() {
		problem(fmt.Errorf("there are no weights%s", m.withoutWeights()))
	}
	source, err := m.Tokenizer()
	problem(err)
	switch {
	case source.JSON != nil:
		i.Tokenizer = "tokenizer.json"
	case source.GGUF != nil:
		i.Tokenizer, i.Vocabulary = "gguf "+source.GGUF.Model+" "+source.GGUF.Pre, len(source.GGUF.Tokens)
	}
	templates, err := m.ChatTemplates()
	problem(err)
	i.Templates = slices.Sorted(maps.Keys(templates))
	if i.Tokenizer != "" {
		special, err := m.SpecialTokens()
		problem(err)
		for name, text := range special {
			i.Special = append(i.Special, fmt.Sprintf("%s=%s", name, text))
		}
		slices.Sort(i.Special)
	}
	return i, nil
}

// String is a table of a line for each fact.
func (i *Info) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("path", "%s", i.Path)
	if i.Format != "" {
		line("format", "%s", i.Format)
	}
	if c := i.Config; c != nil {
		line("architecture", "%s", c.Architecture)
		line("layers", "%d of hidden size %d, feed-forward %d", c.NumLayers, c.HiddenSize, c.IntermediateSize)
		line("attention", "%d heads of %d, %d key-value heads", c.NumHeads, c.HeadDim, c.NumKVHeads)
		line("vocabulary", "%d", c.VocabSize)
		rope := fmt.Sprintf("rope %s, theta %g", c.Rope.Type, c.Rope.Theta)
		if c.SlidingWindow > 0 {
			rope += fmt.Sprintf(", sliding window %d", c.SlidingWindow)
		}
		line("context", "%d tokens (%s)", c.MaxContext(), rope)
		line("stop ids", "%v", c.EOS)
	}
	if i.Tensors > 0 {
		line("parameters", "%s in %d tensors, %s bytes as float32", count(i.Parameters), i.Tensors, count(i.Bytes))
		for _, kind := range slices.Sorted(maps.Keys(i.Types)) {
			line("  "+kind, "%s", count(i.Types[kind]))
		}
	}
	if i.Tokenizer != "" {
		line("tokenizer", "%s", i.Tokenizer)
		line("special", "%s", strings.Join(i.Special, " "))
	}
	if len(i.Templates) > 0 {
		line("templates", "%s", strings.Join(i.Templates, ", "))
	} else {
		line("templates", "none")
	}
	if i.Problem != "" {
		line("not usable", "%s", i.Problem)
	}
	return b.String()
}

// count writes a number with four digits and a unit.
func count(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.4g G", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.4g M", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.4g k", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
