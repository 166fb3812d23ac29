package job

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Sources are the files of data.train or data.eval: in a job file one path, or a list of paths and mappings.
type Sources []Source

// Source is one file of tasks.
type Source struct {
	Path    string
	Name    string            // of the source in tables; the file's name without its ending
	Weight  int               // tasks of this source in every (sum of the weights) of them; 0: none was given, which counts as 1
	Columns map[string]string // for this file, in place of data.columns; nil: those
}

// most of a weight: the pattern in which sources take turns has as many places as the weights' sum.
const maxWeight = 1000

const sourceForm = "allowed is a path, or a list of paths and of {path: FILE, weight: 1, name: NAME, columns: {…}}"

func decodeSources(d *decoder, n *yaml.Node, s *Sources, path string) {
	*s = nil
	switch {
	case n.ShortTag() == "!!null":
	case n.Kind == yaml.ScalarNode:
		if one := decodeSource(d, n, path); one.Path != "" {
			*s = Sources{one}
		}
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			at := path + "." + strconv.Itoa(i)
			item = d.follow(item)
			d.found.at[at] = item
			*s = append(*s, decodeSource(d, item, at))
		}
		if len(*s) == 0 {
			d.found.fail(n, "%s: the list is empty; leave it out, or name a file", path)
		}
	default:
		d.found.fail(n, "%s: %s, %s", path, kindName(n), sourceForm)
	}
}

func decodeSource(d *decoder, n *yaml.Node, path string) (s Source) {
	switch n.Kind {
	case yaml.ScalarNode:
		s.Path = d.scalars.text(n, path)
	case yaml.MappingNode:
		d.mapping(n, path, func(key, value *yaml.Node) {
			at := join(path, key.Value)
			d.found.at[at] = value
			switch key.Value {
			case "path":
				s.Path = d.scalars.text(value, at)
			case "name":
				s.Name = d.scalars.text(value, at)
			case "weight":
				s.Weight = int(d.scalars.integer(value, at, limits{min: 1, max: maxWeight, hasMin: true, hasMax: true}))
			case "columns":
				s.Columns = d.texts(value, at)
			default:
				d.unknown(key, path, []string{"path", "weight", "name", "columns"})
			}
		})
		if s.Path == "" {
			d.found.fail(n, "%s: the key path is missing; %s", path, sourceForm)
		}
	default:
		d.found.fail(n, "%s: %s, %s", path, kindName(n), sourceForm)
	}
	if s.Name == "" {
		base := filepath.Base(s.Path)
		s.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	return s
}

// Weighted tells whether the job gives one of the sources a weight.
func (s Sources) Weighted() bool {
	for _, one := range s {
		if one.Weight > 0 {
			return true
		}
	}
	return false
}

// ColumnsOr are the columns of the source, where it has none those of all.
func (s Source) ColumnsOr(all map[string]string) map[string]string {
	if s.Columns != nil {
		return s.Columns
	}
	return all
}

// encode is the form that the job file has: a path alone where nothing more is said.
func (s Sources) encode() any {
	if len(s) == 1 && s[0].Weight == 0 && s[0].Columns == nil && s[0].Name == strings.TrimSuffix(filepath.Base(s[0].Path), filepath.Ext(s[0].Path)) {
		return s[0].Path
	}
	if len(s) == 0 {
		return nil
	}
	out := []any{}
	for _, one := range s {
		item := map[string]any{"path": one.Path, "name": one.Name}
		if one.Weight > 0 {
			item["weight"] = one.Weight
		}
		if one.Columns != nil {
			columns := map[string]any{}
			for k, v := range one.Columns {
				columns[k] = v
			}
			item["columns"] = columns
		}
		out = append(out, item)
	}
	return out
}

// MarshalJSON writes the form that the job file has.
func (s Sources) MarshalJSON() ([]byte, error) { return json.Marshal(s.encode()) }

func sourcesSchema() map[string]any {
	text := map[string]any{"type": "string"}
	one := map[string]any{"type": "object", "required": []any{"path"}, "additionalProperties": false, "properties": map[string]any{
		"path":    map[string]any{"type": "string", "description": "a file of JSON lines, or with one JSON list"},
		"name":    map[string]any{"type": "string", "description": "of the source, in tables and as the tasks' field source; left out: the file's name without its ending"},
		"weight":  map[string]any{"type": "integer", "minimum": 1, "maximum": maxWeight, "default": 1, "description": "tasks of this source in every (sum of the weights) of them"},
		"columns": map[string]any{"type": "object", "additionalProperties": text, "description": "the file's names of prompt, id and answer, in place of data.columns"},
	}}
	return map[string]any{"oneOf": []any{
		map[string]any{"type": []string{"string", "null"}},
		map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"oneOf": []any{text, one}}},
	}}
}

// checkData finds what contradicts itself in data, eval and checkpoint.
func checkData(j *Job, fail func(path, format string, args ...any)) {
	checkSources("data.train", j.Data.Train, fail)
	checkSources("data.eval", j.Data.Eval, fail)
	if j.Data.Eval.Weighted() {
		fail("data.eval", "every held-out task is evaluated; weights are for data.train")
	}
	if j.Data.Train.Weighted() && j.Data.Balance != "" {
		fail("data.balance", "the weights of data.train say already what a step takes; leave one of the two out (balance: source takes the same number of each)")
	}
	if j.SFT != nil && (len(j.Data.Train) > 1 || len(j.Data.Eval) > 1) {
		fail("data", "sft learns from one file; leave the others out")
	}
	checkSpread(j.Data, fail)
	switch c := j.Data.Curriculum; {
	case c == nil:
	case j.SFT != nil:
		fail("data.curriculum", "sft deals conversations, not tasks; leave it out")
	case (c.By == "difficulty") != (c.Field != ""):
		fail("data.curriculum.field", "it names the number by which curriculum.by: difficulty orders the tasks, and nothing else; by is %s", c.By)
	}
	checkEval(j, fail)
}

// checkSpread refuses what would contradict the turns of data.spread.
func checkSpread(d Data, fail func(path, format string, args ...any)) {
	switch {
	case d.Spread == "":
	case d.Spread == d.Balance:
		fail("data.spread", "%s is the field of data.balance: within one value of it there is no other to take turns with; name another field", d.Spread)
	case d.Curriculum != nil:
		fail("data.spread", "data.curriculum orders the epochs already; leave one of the two out")
	}
}

func checkSources(path string, sources Sources, fail func(path, format string, args ...any)) {
	seen := map[string]bool{}
	for i, s := range sources {
		at := path + "." + strconv.Itoa(i)
		if seen[s.Name] {
			fail(at, "two sources are named %q; give one another name", s.Name)
		}
		seen[s.Name] = true
		checkColumns(at+".columns", s.Columns, fail)
	}
}

func checkEval(j *Job, fail func(path, format string, args ...any)) {
	e := j.Eval
	for i, k := range e.K {
		if k < 1 || k > e.Samples {
			fail("eval.k."+strconv.Itoa(i), "pass@%d cannot be estimated from eval.samples: %d; k is from 1 to samples", k, e.Samples)
		}
	}
	if e.Samples > 1 && e.Temperature == 0 {
		fail("eval.samples", "%d, but eval.temperature is 0, which samples the same trajectory each time; raise it", e.Samples)
	}
	if j.SFT != nil && (e.Samples > 1 || len(e.K) > 0) {
		fail("eval.samples", "sft evaluates the loss of held-out conversations; leave samples and k out")
	}
	if e.StopAfter > 0 && e.Every == 0 {
		fail("eval.stop_after", "%d evaluations never come, because eval.every is 0; set it", e.StopAfter)
	}
	if j.Checkpoint.Best && !j.HasEval() {
		fail("checkpoint.best", "the best is known by evaluations, but data.eval names no tasks")
	}
}

func checkColumns(path string, columns map[string]string, fail func(path, format string, args ...any)) {
	for _, k := range slices.Sorted(maps.Keys(columns)) {
		if known := []string{"prompt", "id", "answer", "messages"}; !slices.Contains(known, k) {
			fail(path, "there is no column %q; allowed: prompt, id, answer, messages%s", k, near(k, known))
		}
	}
}
