package export

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview"
)

// tracker is an MLflow server with one run, which keeps each metric once.
type tracker struct {
	t       *testing.T
	made    bool
	metrics map[mlflowMetric]bool
}

func (s *tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	type object map[string]any
	list := func(key string) (out []mlflowMetric) {
		for m := range s.metrics {
			if key == "" || m.Key == key {
				out = append(out, m)
			}
		}
		return out
	}
	answer := object{}
	switch path.Base(r.URL.Path) {
	case "search":
		if s.made {
			answer = object{"runs": []object{{"info": object{"run_id": "r"}, "data": object{"metrics": list("")}}}}
		}
	case "create":
		s.made = true
	case "log-batch":
		var in struct{ Metrics []mlflowMetric }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			s.t.Error(err)
		}
		for _, m := range in.Metrics {
			s.metrics[m] = true
		}
	case "get-history":
		answer = object{"metrics": list(r.URL.Query().Get("metric_key"))}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

// shown is the value of a step that MLflow shows: the newest, of those of one time the largest.
func (s *tracker) shown(key string, step int) float64 {
	var of []mlflowMetric
	for m := range s.metrics {
		if m.Key == key && m.Step == step {
			of = append(of, m)
		}
	}
	return slices.MaxFunc(of, func(a, b mlflowMetric) int {
		if a.Timestamp != b.Timestamp {
			return int(a.Timestamp - b.Timestamp)
		}
		return int(1000 * (a.Value - b.Value))
	}).Value
}

// threeSteps is a run whose third step has a reward and ends some seconds after the start. steps: it has trained so many of them.
func threeSteps(steps int, reward, elapsed float64, sent Sent) Run {
	curve := func(values ...float64) *overview.Curve {
		return &overview.Curve{Steps: []int{1, 2, 3}[:steps], Values: values[:steps]}
	}
	return Run{Name: "calc", Began: time.Unix(1_700_000_000, 0), Sent: sent, Metrics: overview.Metrics{
		"reward/mean": curve(0.25, 0.5, reward), "seconds/elapsed": curve(10, 20, elapsed),
	}}
}

// A step that was trained anew has another value, and an earlier time where it took less. MLflow gets the value once, and shows it. sent: the process that
// trains remembers what it sent.
func TestMLflowShowsStepsThatWereTrainedAnew(t *testing.T) {
	for name, sent := range map[string]Sent{"another process": nil, "the process that trains": {}} {
		t.Run(name, func(t *testing.T) {
			server := &tracker{t: t, metrics: map[mlflowMetric]bool{}}
			s := httptest.NewServer(server)
			defer s.Close()
			for i, c := range []struct {
				reward, elapsed float64
				sent            int
			}{
				{0.75, 30, 6},
				{0.75, 30, 0},
				{0.625, 25, 2},
				{0.625, 25, 0},
				{0.625, 25, 0}, // anew, and faster
				{0.75, 30, 2},
				{0.75, 30, 0}, // anew as at first
				{0.5, 30, 1},
				{0.5, 30, 0}, // at the same time
			} {
				n, err := sendMLflow(t.Context(), s.URL, threeSteps(3, c.reward, c.elapsed, sent))
				require.NoError(t, err)
				require.Equal(t, c.sent, n, "export %d", i+1)
				require.Equal(t, c.reward, server.shown("reward/mean", 3), "export %d", i+1)
			}
			require.Len(t, server.metrics, 6+2+2+1)
		})
	}
}

// A process that resumes a run sends the steps up to its checkpoint first. It still knows then which later steps the server has.
func TestMLflowShowsStepsThatAResumedRunTrainedAnew(t *testing.T) {
	server := &tracker{t: t, metrics: map[mlflowMetric]bool{}}
	s := httptest.NewServer(server)
	defer s.Close()
	first, resumed := Sent{}, Sent{}
	for i, c := range []struct {
		run  Run
		sent int
	}{
		{threeSteps(3, 0.75, 30, first), 6},
		{threeSteps(2, 0, 0, resumed), 0},
		{threeSteps(3, 0.625, 25, resumed), 2},
		{threeSteps(3, 0.625, 25, resumed), 0},
	} {
		n, err := sendMLflow(t.Context(), s.URL, c.run)
		require.NoError(t, err)
		require.Equal(t, c.sent, n, "export %d", i+1)
	}
	require.Equal(t, 0.625, server.shown("reward/mean", 3))
	require.Equal(t, 25.0, server.shown("seconds/elapsed", 3))
}
