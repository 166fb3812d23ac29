package job

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
)

// Reference is docs/job-reference.md: every setting of a job file with its type, default, range and meaning, in the order of the
// file. Names and meanings come from the tags of the struct, defaults from a job without any setting.
func Reference() (string, error) {
	r := &reference{}
	r.printf("# The job file: every setting\n\n")
	r.printf("%s", strings.ReplaceAll(referenceHead, "''", "`"))
	j, err := Parse("job.yaml", []byte(emptyJob), Options{})
	if err != nil {
		return "", err
	}
	j.Model.Path, j.Data.Train, j.Output = "", nil, "" // which emptyJob had to give, or which follow from its name
	algorithm, err := algorithmDefaults()
	if err != nil {
		return "", err
	}
	r.algorithm = algorithm
	r.section("", "The job", reflect.ValueOf(j).Elem())
	return r.text.String(), nil
}

const referenceHead = `This page is generated: ''go run ./scripts/job_reference >docs/job-reference.md'' writes it from the
types that read a job file (''orchestrator/job'', ''algorithms''), and
''go test -run Reference ./orchestrator/job'' fails when it is stale. What the settings are for stands
in the chapters of [the book](README.md). ''agentfly job effective JOB'' prints a job with all of its
settings, ''agentfly job schema'' the JSON schema for editors.

A setting is named by its path: ''rollout.group_size'' is the key ''group_size'' of the block ''rollout'',
and ''--set rollout.group_size=4'' changes it on the command line. The default ''null'' says that the
setting is not set; ''required'' says that there is no default. Defaults are those of a job that sets
nothing. In ''algorithm'' they are what ''grpo'' and ''ppo_clip'' get, in ''algorithm.value'' what the critic
of ''gae'' gets, and in ''algorithm.correction'' what ''seq_mask'' gets.
`

// emptyJob has the settings without which no job is read, and no other.
const emptyJob = "version: 1\nname: empty\nmodel: {path: empty}\nrewards: [final_answer]\ndata: {train: empty.jsonl}\n"

// reference writes the page.
type reference struct {
	text      strings.Builder
	algorithm map[string]string // defaults by path
}

func (r *reference) printf(format string, args ...any) { fmt.Fprintf(&r.text, format, args...) }

// section writes the settings of one block and then its blocks.
func (r *reference) section(path, title string, v reflect.Value) {
	r.printf("\n## %s\n\n", title)
	r.printf("| setting | type | default | allowed | meaning |\n|---|---|---|---|---|\n")
	var blocks []func()
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		key := keyOf(f)
		if key == "" {
			continue
		}
		at, meaning := join(path, key), docOf(f, agents.NewRegistry())
		block, optional := value, false
		if value.Kind() == reflect.Pointer && value.Type().Elem().Kind() == reflect.Struct {
			block, optional = reflect.New(value.Type().Elem()).Elem(), true
			setDefaults(block, at)
		}
		if _, ok := customSchema(block.Addr().Interface()); block.Kind() == reflect.Struct && !ok {
			anchor := strings.ReplaceAll(at, ".", "")
			standard := ""
			if optional {
				standard = "null"
			}
			r.row(key, "block", standard, "", fmt.Sprintf("%s; see [%s](#%s)", meaning, at, anchor))
			blocks = append(blocks, func() { r.section(at, at, block) })
			continue
		}
		r.row(key, typeName(value), r.standard(at, f, value), allowed(f, value), meaning)
	}
	for _, f := range blocks {
		f()
	}
}

// pageName is a page that a meaning names; on the page it is a link.
var pageName = regexp.MustCompile(`docs/([a-z-]+\.md)`)

func (r *reference) row(key, kind, standard, allowed, meaning string) {
	cell := func(s string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(s) }
	if standard != "" && standard != "required" {
		standard = "`" + standard + "`"
	}
	meaning = pageName.ReplaceAllString(cell(meaning), "[$1]($1)")
	r.printf("| `%s` | %s | %s | %s | %s |\n", key, kind, cell(standard), cell(allowed), meaning)
}

// standard is the default of a setting, as a job file writes it.
func (r *reference) standard(path string, f reflect.StructField, v reflect.Value) string {
	if rest, ok := strings.CutPrefix(path, "algorithm."); ok {
		if s, ok := r.algorithm[rest]; ok {
			return s
		}
	}
	switch need := f.Tag.Get("need"); {
	case need == "true":
		return "required"
	case need != "":
		return "required " + need
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return "null"
	case reflect.String:
		if v.String() == "" {
			return "null"
		}
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

// typeName is what a job file holds there.
func typeName(v reflect.Value) string {
	switch v.Addr().Interface().(type) {
	case *Sources:
		return "path, or list"
	case *[]Reward, *[]Tool, *[]Report:
		return "list of names or mappings"
	case *algorithms.Choice:
		return "name or mapping"
	}
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kinds := map[reflect.Kind]string{
		reflect.Int: "whole number", reflect.Uint64: "whole number", reflect.Float64: "number", reflect.String: "text", reflect.Bool: "true or false",
		reflect.Struct: "mapping", reflect.Interface: "parameter",
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + kinds[t.Elem().Kind()] + "s"
	case reflect.Map:
		return "mapping of " + kinds[t.Elem().Kind()] + "s"
	}
	return kinds[t.Kind()]
}

// allowed is the range of a number with its unit, or the choices of a text.
func allowed(f reflect.StructField, v reflect.Value) string {
	if own := f.Tag.Get("range"); own != "" {
		return own
	}
	if f.Tag.Get("names") == "kinds" {
		return strings.Join(agents.NewRegistry().KindNames(), ", ")
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		return strings.ReplaceAll(enum, "|", ", ")
	}
	l := limitsOf(f)
	if !slices.Contains([]reflect.Kind{reflect.Int, reflect.Uint64, reflect.Float64}, v.Kind()) || !l.hasMin && !l.hasMax && !l.hasAbove {
		return l.unit
	}
	text := strings.Join(strings.Fields(strings.TrimPrefix(l.allowed(""), "allowed is")), " ")
	return strings.TrimPrefix(strings.TrimPrefix(text, "of "), "from ")
}

// algorithmDefaults are what the block algorithm resolves to when nothing is set, and the critic's and the correction's settings
// where an estimator or a kind has them.
func algorithmDefaults() (map[string]string, error) {
	names := algorithms.NewRegistry()
	a, err := algorithms.Config{}.Resolve(names)
	if err != nil {
		return nil, err
	}
	critic, err := algorithms.Config{Advantage: algorithms.Choice{Name: "gae"}}.Resolve(names)
	if err != nil {
		return nil, err
	}
	mask, err := algorithms.Config{Correction: algorithms.Correction{Kind: algorithms.CorrectionSeqMask}}.Resolve(names)
	if err != nil {
		return nil, err
	}
	out := map[string]string{"max_tokens": "null", "overlong.penalty": "0"}
	for key, v := range map[string]any{
		"advantage": a.Estimator.Name, "loss": a.Loss.Name, "aggregation": a.Aggregation.Name, "entropy": a.Entropy,
		"clip_low": a.Loss.Settings.ClipLow, "clip_high": a.Loss.Settings.ClipHigh, "dual_clip": a.Loss.Settings.DualClip,
		"epochs": a.Epochs, "mini_batches": a.MiniBatches, "dynamic_sampling": a.DynamicSampling, "overlong.buffer": a.Overlong.Buffer,
		"kl.coefficient": a.KL.Coefficient, "kl.estimator": a.KL.Estimator, "kl.in": a.KL.In,
		"value.coefficient": critic.Value.Coefficient, "value.clip": critic.Value.Clip,
		"correction.kind": a.Correction.Kind, "correction.cap": mask.Correction.Cap, "correction.low": mask.Correction.Low, "correction.high": mask.Correction.High,
	} {
		out[key] = fmt.Sprint(v)
	}
	return out, nil
}
