package report

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/metrics.md from the types")

const pageFile = "../../docs/metrics.md"

// Whatever the types say of a key stands on the page.
func TestMetricsPage(t *testing.T) {
	if *update {
		require.NoError(t, os.WriteFile(pageFile, []byte(metricsPage()), 0o644))
	}
	is, err := os.ReadFile(pageFile)
	require.NoError(t, err)
	require.Equal(t, metricsPage(), string(is), "docs/metrics.md is not what the types say: go generate ./orchestrator/report")
}

// pageWidth is where the lines of the page wrap.
const pageWidth = 100

// metricsPage is docs/metrics.md, as the types say it.
func metricsPage() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n<!-- Written from the types of orchestrator/report: go generate ./orchestrator/report -->\n\n")
	p := page{&b}
	p.paragraph("", "One line of `metrics.jsonl` a step, and one for each evaluation (key `eval`). Unless it says otherwise a number is of that step alone. "+
		"A step has all keys of its kind, but for those of which this page says when it has them. Behind a key stands its unit. Capitals behind the last slash of a key "+
		"stand for several: `stop/REASON` for `stop/answer` and others.")
	p.group(reflect.TypeFor[Step](), "")
	p.section("Evaluations", "The object behind the key `eval`; docs/evaluation.md says how it comes about. What does not apply is left out.")
	p.object(reflect.TypeFor[Evaluation]())
	p.section("summary.json", "The summary of a run, written at its end.")
	p.object(reflect.TypeFor[Summary]())
	return b.String()
}

type page struct{ *strings.Builder }

func (p page) section(title, about string) {
	fmt.Fprintf(p, "\n## %s\n\n", title)
	if about != "" {
		p.paragraph("", about)
		p.WriteByte('\n')
	}
}

// group writes an item for each key of a struct of metrics.
func (p page) group(t reflect.Type, prefix string) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, _ := metricOf(f, prefix)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if title := f.Tag.Get("title"); title != "" {
			p.section(title, f.Tag.Get("about"))
		}
		switch {
		case inner == reflect.TypeFor[Spread]():
			p.spread(f, key)
		case inner.Kind() == reflect.Struct:
			p.group(inner, key)
		default:
			p.item(key, f)
		}
	}
}

// spread writes one item for the keys of a distribution.
func (p page) spread(f reflect.StructField, prefix string) {
	var keys, docs []string
	t := reflect.TypeFor[Spread]()
	for i := range t.NumField() {
		s := t.Field(i)
		key, _ := metricOf(s, prefix)
		keys, docs = append(keys, "`"+key+"`"), append(docs, s.Tag.Get("doc"))
	}
	p.write(strings.Join(keys, ", "), t.Field(0).Tag.Get("unit"), f.Tag.Get("doc")+": "+strings.Join(docs, ", "), f.Tag.Get("when"))
}

func (p page) item(key string, f reflect.StructField) {
	p.write("`"+key+"`", f.Tag.Get("unit"), f.Tag.Get("doc"), f.Tag.Get("when"))
}

// object writes an item for each key of a struct that is written as JSON.
func (p page) object(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() { // it is not written
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p.item(key, f)
	}
}

func (p page) write(keys, unit, doc, when string) {
	if when != "" {
		doc += " (only " + when + ")"
	}
	if unit != "" {
		keys += " [" + unit + "]"
	}
	p.paragraph("  ", "- "+keys+": "+quoteNames(doc))
}

// names are settings of a job and keys of a step, which the page writes as code.
var names = regexp.MustCompile(`(?:^|[ (,])((?:rollout|trainer|eval|data|kl)\.[a-z_]+(?:: [a-z]+)?|(?:trajectories|errors|seconds|update|tools|tokens)/[a-z_]+)`)

func quoteNames(text string) string {
	return names.ReplaceAllStringFunc(text, func(s string) string {
		name := strings.TrimLeft(s, " (,")
		return strings.TrimSuffix(s, name) + "`" + name + "`"
	})
}

// paragraph writes a text in lines of the page's width, those after the first behind indent. Names in code stay whole.
func (p page) paragraph(indent, text string) {
	line, code := "", false
	var words []string
	for _, part := range strings.Split(text, " ") {
		if code {
			words[len(words)-1] += " " + part
		} else {
			words = append(words, part)
		}
		if strings.Count(part, "`")%2 == 1 {
			code = !code
		}
	}
	for _, w := range words {
		switch {
		case line == "":
			line = w
		case len([]rune(line))+1+len([]rune(w)) > pageWidth:
			p.WriteString(line + "\n")
			line = indent + w
		default:
			line += " " + w
		}
	}
	p.WriteString(line + "\n")
}
