package view

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/exposition"
	"github.com/agentfly/agentfly/orchestrator/report"
)

// prometheus answers /metrics: the metrics of the last step of each run, by the run's name. A metric with an open set of keys, such as reward/NAME, has
// its part of the name as the label key.
func (s *Server) prometheus(w http.ResponseWriter, r *http.Request) {
	type sample struct {
		value  float64
		labels []string
	}
	families, help := map[string][]sample{}, map[string]string{"agentfly_steps": "steps that are recorded", "agentfly_written_seconds": "seconds since the run last wrote"}
	explained, open := map[string]report.Explained{}, map[string]report.Explained{}
	for _, e := range report.Glossary() {
		explained[e.Key] = e
		if at := strings.LastIndexByte(e.Key, '/'); at >= 0 && strings.ToUpper(e.Key[at:]) == e.Key[at:] {
			open[e.Key[:at]] = e
		}
	}
	list, _, err := s.runs.list(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	for _, run := range list {
		families["agentfly_steps"] = append(families["agentfly_steps"], sample{float64(run.Steps), []string{"run", run.Title}})
		families["agentfly_written_seconds"] = append(families["agentfly_written_seconds"], sample{run.Age, []string{"run", run.Title}})
		for key, v := range run.last {
			labels, about := []string{"run", run.Title}, explained[key]
			name := "agentfly_" + exposition.Name(key)
			if at := strings.LastIndexByte(key, '/'); about.Key == "" && at >= 0 {
				if e, ok := open[key[:at]]; ok {
					about, labels, name = e, append(labels, "key", key[at+1:]), "agentfly_"+exposition.Name(key[:at])
				}
			}
			families[name] = append(families[name], sample{v, labels})
			if help[name] = about.Doc; about.Unit != "" {
				help[name] += " (" + about.Unit + ")"
			}
		}
	}
	x := &exposition.Text{}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		x.Family(name, "gauge", help[name])
		seen := map[string]bool{} // two keys may come to one name
		slices.SortStableFunc(families[name], func(a, b sample) int { return slices.Compare(a.labels, b.labels) })
		for _, v := range families[name] {
			if id := strings.Join(v.labels, "\x00"); !seen[id] {
				seen[id] = true
				x.Sample(name, v.value, v.labels...)
			}
		}
	}
	x.ServeHTTP(w, r)
}
