package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
)

// MLflow's tracking server takes metrics over REST (/api/2.0/mlflow). A run is found again by a tag, and its metrics are read before more are sent: a
// second export of the same run sends what is new.

var mlflow = Format{Name: "mlflow", Description: "curves, to the MLflow server that --to names", Send: sendMLflow}

const (
	mlflowExperiment = "agentfly"
	mlflowTag        = "agentfly.run"
	mlflowBatch      = 1000             // metrics that the server takes in a request
	mlflowWait       = 30 * time.Second // for an answer
)

type mlflowServer struct{ base string }

type mlflowError struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

// call sends a request and reads its answer. query is for GET, body for POST.
func (s mlflowServer) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, mlflowWait)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, method, s.base+"/api/2.0/mlflow/"+path+"?"+query.Encode(), bytes.NewReader(data))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var failed mlflowError
		if json.Unmarshal(answer, &failed) != nil || failed.Code == "" {
			failed = mlflowError{resp.Status, fmt.Sprintf("%.200q", answer)}
		}
		return fmt.Errorf("%s: %s: %s", path, wording.Clip(failed.Code, 64), wording.Clip(failed.Message, 300))
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s: the server's answer is no JSON: %.200q; is it MLflow's?", path, answer)
	}
	return nil
}

type mlflowMetric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"`
	Step      int     `json:"step"`
}

// mlflowKey is a metric's name of the characters that the server takes.
func mlflowKey(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-. :/", c) {
			return c
		}
		return '_'
	}, name)
}

func sendMLflow(ctx context.Context, to string, r Run) (sent int, err error) {
	if u, err := url.Parse(to); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return 0, errors.New("this is no address of an MLflow server; write one such as http://127.0.0.1:5000") // it may hold a password
	}
	s := mlflowServer{strings.TrimRight(to, "/")}
	names := map[string]string{} // of metrics by their keys there
	for _, name := range r.Metrics.Keys() {
		key := mlflowKey(name)
		if other, ok := names[key]; ok {
			return 0, fmt.Errorf("MLflow would hold the metrics %q and %q under one name, %q", other, name, key)
		}
		names[key] = name
	}
	run, last, err := s.run(ctx, r)
	if err != nil {
		return 0, err
	}
	var batch []mlflowMetric
	newest := Sent{}
	for _, key := range slices.Sorted(maps.Keys(names)) {
		there, known := r.Sent[key]
		switch _, held := last[key]; {
		case !held: // the server may have lost what was sent
			there = nil
		case !known:
			if there, err = s.history(ctx, run, key); err != nil {
				return sent, err
			}
		}
		newest[key] = map[int]sentValue{}
		maps.Copy(newest[key], there) // also of steps that the curve of a resumed run has not reached again
		curve := r.Metrics[names[key]]
		for i, step := range curve.Steps {
			was, ok := there[step]
			if ok && was.value == curve.Values[i] {
				continue
			}
			at := r.at(step).UnixMilli()
			if ok { // MLflow shows the newest; a step that was trained anew may have ended earlier than before
				at = max(at, was.timestamp+1)
			}
			newest[key][step] = sentValue{curve.Values[i], at}
			batch = append(batch, mlflowMetric{key, curve.Values[i], at, step})
		}
	}
	for part := range slices.Chunk(batch, mlflowBatch) {
		if err := s.call(ctx, http.MethodPost, "runs/log-batch", nil, map[string]any{"run_id": run, "metrics": part}, &struct{}{}); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	if r.Sent != nil { // a call that failed leaves Sent as it was, which is what the server has at least
		maps.Copy(r.Sent, newest)
	}
	status := map[string]string{"running": "RUNNING", "failed": "FAILED", "interrupted": "KILLED"}[string(r.State)]
	if status == "" {
		status = "FINISHED"
	}
	update := map[string]any{"run_id": run, "status": status}
	if status != "RUNNING" {
		update["end_time"] = r.ended().UnixMilli()
	}
	return sent, s.call(ctx, http.MethodPost, "runs/update", nil, update, &struct{}{})
}

// run finds the run, or makes it, and says which metrics it has.
func (s mlflowServer) run(ctx context.Context, r Run) (id string, has map[string]bool, err error) {
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	if err := s.call(ctx, http.MethodGet, "experiments/get-by-name", url.Values{"experiment_name": {mlflowExperiment}}, nil, &found); err != nil {
		if !strings.Contains(err.Error(), "RESOURCE_DOES_NOT_EXIST") {
			return "", nil, err
		}
		if err := s.call(ctx, http.MethodPost, "experiments/create", nil, map[string]any{"name": mlflowExperiment}, &found.Experiment); err != nil {
			return "", nil, err
		}
	}
	tag := r.identity()
	var runs struct {
		Runs []struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
			Data struct {
				Metrics []struct {
					Key string `json:"key"`
				} `json:"metrics"`
			} `json:"data"`
		} `json:"runs"`
	}
	search := map[string]any{"experiment_ids": []string{found.Experiment.ID}, "filter": fmt.Sprintf("tags.`%s` = '%s'", mlflowTag, tag), "max_results": 1}
	if err := s.call(ctx, http.MethodPost, "runs/search", nil, search, &runs); err != nil {
		return "", nil, err
	}
	if len(runs.Runs) > 0 {
		has = map[string]bool{}
		for _, m := range runs.Runs[0].Data.Metrics {
			has[m.Key] = true
		}
		return runs.Runs[0].Info.ID, has, nil
	}
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	type pair struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	if err := s.call(ctx, http.MethodPost, "runs/create", nil, map[string]any{
		"experiment_id": found.Experiment.ID, "run_name": r.Name, "start_time": r.Began.UnixMilli(),
		"tags": []pair{{mlflowTag, tag}, {"agentfly.model", r.Model}, {"agentfly.algorithm", r.Algorithm}},
	}, &made); err != nil {
		return "", nil, err
	}
	return made.Run.Info.ID, nil, nil
}

// history is the newest value of each step that the server has: the one that it shows, which of several of one time is the largest.
func (s mlflowServer) history(ctx context.Context, run, key string) (map[int]sentValue, error) {
	out := map[int]sentValue{}
	query := url.Values{"run_id": {run}, "metric_key": {key}, "max_results": {"25000"}}
	for {
		var page struct {
			Metrics []mlflowMetric `json:"metrics"`
			Next    string         `json:"next_page_token"`
		}
		if err := s.call(ctx, http.MethodGet, "metrics/get-history", query, nil, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Metrics {
			if was, ok := out[m.Step]; !ok || m.Timestamp > was.timestamp || m.Timestamp == was.timestamp && m.Value > was.value {
				out[m.Step] = sentValue{m.Value, m.Timestamp}
			}
		}
		if page.Next == "" {
			return out, nil
		}
		query.Set("page_token", page.Next)
	}
}
