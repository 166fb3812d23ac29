package job

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Report is one target that a run reports to while it trains: a format of `agentfly export`.
type Report struct {
	Format string
	URL    string // of the server, for those of reportServers; it may hold a password
}

// reportFiles are the formats that are files in the run folder; a test holds them to package export, which is above this one.
var reportFiles = []string{"tensorboard", "csv", "jsonl", "inspect", "atif", "parquet", "trackio", "wandb"}

// reportServers are the formats that are sent to a server, with what that is and an address of one.
var reportServers = map[string]struct{ what, such string }{
	"mlflow": {"an MLflow server", "http://127.0.0.1:5000"}, "otlp": {"an OpenTelemetry collector", "http://127.0.0.1:4318"},
}

const reportForm = "allowed is tensorboard, csv, jsonl, inspect, atif, parquet, trackio, wandb, {mlflow: URL} or {otlp: URL}"

func decodeReport(d *decoder, n *yaml.Node, r *Report, path string) {
	*r = Report{}
	switch n.Kind {
	case yaml.ScalarNode:
		r.Format = d.scalars.text(n, path)
		_, sent := reportServers[r.Format]
		switch {
		case sent:
			d.found.fail(n, "%s: %s needs the address of its server: {%s: URL}", path, r.Format, r.Format)
		case !slices.Contains(reportFiles, r.Format):
			d.found.fail(n, "%s: there is no format %q; %s%s", path, r.Format, reportForm, near(r.Format, slices.Concat(reportFiles, reportServerNames())))
		}
		return
	case yaml.MappingNode:
	default:
		d.found.fail(n, "%s: %s, %s", path, kindName(n), reportForm)
		return
	}
	if len(n.Content) == 0 {
		d.found.fail(n, "%s: the mapping is empty, %s", path, reportForm)
	}
	d.mapping(n, path, func(key, value *yaml.Node) {
		at := join(path, key.Value)
		d.found.at[at] = value
		server, sent := reportServers[key.Value]
		switch {
		case sent && r.Format != "":
			d.found.fail(key, "%s: %s and %s are two entries of the list, a mapping each", path, r.Format, key.Value)
		case sent:
			r.Format, r.URL = key.Value, d.scalars.text(value, at)
			if u, err := url.Parse(r.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
				d.found.fail(value, "%s: this is no address of %s; write one such as %s", at, server.what, server.such) // the value may hold a password
			}
		case slices.Contains(reportFiles, key.Value):
			d.found.fail(key, "%s: %s takes no options; write its name alone", path, key.Value)
		default:
			d.found.fail(key, "%s: unknown key %q; %s%s", path, key.Value, reportForm, near(key.Value, reportServerNames()))
		}
	})
}

func reportServerNames() []string { return slices.Sorted(maps.Keys(reportServers)) }

// Shown is the target for people: without the password of its address.
func (r Report) Shown() string {
	if u, err := url.Parse(r.URL); r.URL != "" && err == nil {
		return u.Redacted()
	}
	return r.Format
}

func (r Report) encode() any {
	if r.URL == "" {
		return r.Format
	}
	return map[string]any{r.Format: r.URL}
}

// MarshalJSON writes the form that the job file has.
func (r Report) MarshalJSON() ([]byte, error) { return json.Marshal(r.encode()) }

func reportSchema() map[string]any {
	names := make([]any, len(reportFiles))
	for i, name := range reportFiles {
		names[i] = name
	}
	forms := []any{map[string]any{"type": "string", "enum": names}}
	for _, name := range reportServerNames() {
		server := reportServers[name]
		forms = append(forms, map[string]any{"type": "object", "additionalProperties": false, "required": []any{name}, "properties": map[string]any{
			name: map[string]any{"type": "string", "description": "address of " + server.what + ", such as " + server.such},
		}})
	}
	return map[string]any{"oneOf": forms}
}

// checkReports finds targets that are given twice.
func checkReports(j *Job, fail func(path, format string, args ...any)) {
	seen := map[Report]bool{}
	for i, r := range j.Report {
		same := Report{r.Format, strings.TrimRight(r.URL, "/")}
		if r.Format != "" && seen[same] {
			fail("report."+strconv.Itoa(i), "%s is given twice", r.Shown())
		}
		seen[same] = true
	}
}
