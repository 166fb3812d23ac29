package serve

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// metrics are what /metrics tells, under vLLM's names.
type metrics struct {
	mu         sync.Mutex
	prompt     int64
	generated  int64
	finishes   map[string]int64
	firstToken histogram
	nextToken  histogram
	whole      histogram
}

// finishReasons are vLLM's.
var finishReasons = []string{"stop", "length", "abort", "error"}

// histogram counts seconds.
type histogram struct {
	bounds []float64
	counts []int64 // one more than bounds
	sum    float64
	total  int64
}

func newHistogram(bounds ...float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) add(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
	h.total++
}

func (m *metrics) init() {
	m.finishes = map[string]int64{}
	m.firstToken = newHistogram(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
	m.nextToken = newHistogram(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
	m.whole = newHistogram(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
}

// tokens counts n tokens that came now; last is when the choice's tokens before them came, zero for the first ones.
func (m *metrics) tokens(n int, sinceStart time.Duration, last, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generated += int64(n)
	if last.IsZero() {
		m.firstToken.add(sinceStart.Seconds())
		return
	}
	for range n {
		m.nextToken.add(now.Sub(last).Seconds() / float64(n))
	}
}

func (m *metrics) finished(reason string, prompt int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prompt += int64(prompt)
	m.finishes[reason]++
	m.whole.add(took.Seconds())
}

// page writes them for Prometheus, with the engine's figures.
func (m *metrics) page(model string, st Stats) string {
	label := fmt.Sprintf(`model_name=%q,engine="0"`, model)
	var b strings.Builder
	head := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, help, name, kind)
	}
	value := func(name, kind, help string, v float64) {
		head(name, kind, help)
		fmt.Fprintf(&b, "vllm:%s{%s} %s\n", name, label, float(v))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value("num_requests_running", "gauge", "Completions in the engine's current batch.", float64(st.Running))
	value("num_requests_waiting", "gauge", "Completions that wait.", float64(st.Waiting))
	value("kv_cache_usage_perc", "gauge", "Used part of the cache; 1 is all of it.", st.CacheUsage)
	value("prefix_cache_queries_total", "counter", "Prompt tokens that were looked up in the cache.", float64(st.PrefixQueries))
	value("prefix_cache_hits_total", "counter", "Prompt tokens that were found in the cache.", float64(st.PrefixHit))
	value("num_preemptions_total", "counter", "Completions that gave up their place for a while.", float64(st.Preemptions))
	value("prompt_tokens_total", "counter", "Prompt tokens of ended completions.", float64(m.prompt))
	value("generation_tokens_total", "counter", "Sampled tokens.", float64(m.generated))
	head("request_success_total", "counter", "Ended completions by finish reason.")
	for _, reason := range finishReasons {
		fmt.Fprintf(&b, "vllm:request_success_total{%s,finished_reason=%q} %d\n", label, reason, m.finishes[reason])
	}
	for _, h := range []struct {
		name, help string
		*histogram
	}{
		{"time_to_first_token_seconds", "From the start of a completion to its first token.", &m.firstToken},
		{"inter_token_latency_seconds", "From a token to the next.", &m.nextToken},
		{"e2e_request_latency_seconds", "From the start of a completion to its end.", &m.whole},
	} {
		head(h.name, "histogram", h.help)
		sum := int64(0)
		for i, n := range h.counts {
			bound := "+Inf"
			if i < len(h.bounds) {
				bound = float(h.bounds[i])
			}
			sum += n
			fmt.Fprintf(&b, "vllm:%s_bucket{%s,le=%q} %d\n", h.name, label, bound, sum)
		}
		fmt.Fprintf(&b, "vllm:%s_sum{%s} %s\nvllm:%s_count{%s} %d\n", h.name, label, float(h.sum), h.name, label, h.total)
	}
	return b.String()
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
