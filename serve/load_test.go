package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// load is clients that post until end; a third of the requests is aborted at a random moment.
type load struct {
	url, model string
	clients    int
	end        time.Time
	tokens     int
	abort      time.Duration // at the latest; 0: 30 ms
}

type loadResult struct{ done, aborted, tokens int64 }

func (l load) run(t *testing.T) loadResult {
	t.Helper()
	if l.abort == 0 {
		l.abort = 30 * time.Millisecond
	}
	transport := &http.Transport{MaxIdleConnsPerHost: l.clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var done, aborted, tokens atomic.Int64
	errs := make(chan error, l.clients)
	var wait sync.WaitGroup
	for i := range l.clients {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for time.Now().Before(l.end) {
				n, cut, err := l.one(client, r)
				if err != nil {
					errs <- err
					return
				}
				if cut {
					aborted.Add(1)
				} else {
					done.Add(1)
				}
				tokens.Add(int64(n))
			}
		})
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	require.Positive(t, done.Load())
	require.Positive(t, aborted.Load())
	return loadResult{done.Load(), aborted.Load(), tokens.Load()}
}

// one posts one request of a random kind; cut says that it was aborted.
func (l load) one(client *http.Client, r *rand.Rand) (tokens int, cut bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	abort := r.IntN(3) == 0
	if abort {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(l.abort))))
		defer cancel()
	}
	stream, n := r.IntN(2) == 0, 1+r.IntN(2)
	most := 1 + r.IntN(l.tokens)
	path, body := "/v1/completions", map[string]any{
		"model": l.model, "prompt": fmt.Sprintf("Number %d of the story: ", r.IntN(50)), "max_tokens": most, "ignore_eos": true, "seed": r.Int64(),
		"n": n, "stream": stream, "return_token_ids": true,
	}
	if r.IntN(2) == 0 {
		path = "/v1/chat/completions"
		delete(body, "prompt")
		body["messages"] = []map[string]string{{"role": "user", "content": fmt.Sprintf("Say %d.", r.IntN(50))}}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return 0, false, err
	}
	request, err := http.NewRequestWithContext(ctx, "POST", l.url+path, strings.NewReader(string(data)))
	if err != nil {
		return 0, false, err
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(request)
	var answer []byte
	if err == nil {
		answer, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	switch {
	case abort && errors.Is(err, context.DeadlineExceeded):
		return 0, true, nil
	case err != nil:
		return 0, false, fmt.Errorf("%s %s: %w", path, data, err)
	case resp.StatusCode != 200:
		return 0, false, fmt.Errorf("%s %s: status %d: %s", path, data, resp.StatusCode, answer)
	}
	tokens, err = tokensOf(answer, stream)
	if err == nil && tokens != n*most {
		err = fmt.Errorf("%s %s: %d tokens: %s", path, data, tokens, answer)
	}
	return tokens, false, err
}

// tokensOf counts the token ids of a whole answer.
func tokensOf(answer []byte, stream bool) (n int, err error) {
	parts := []string{string(answer)}
	if stream {
		text, ok := strings.CutSuffix(string(answer), "data: [DONE]\n\n")
		if !ok {
			return 0, fmt.Errorf("the stream is cut short: %q", answer)
		}
		parts = strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	}
	for _, p := range parts {
		var chunk struct {
			Choices []struct {
				TokenIDs []int32 `json:"token_ids"`
			}
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(p, "data: ")), &chunk); err != nil {
			return 0, fmt.Errorf("%w: %q", err, p)
		}
		for _, c := range chunk.Choices {
			n += len(c.TokenIDs)
		}
	}
	return n, nil
}

// TestLoadServer holds a running server under load; scripts/test_serve.sh starts one and sets the variables.
func TestLoadServer(t *testing.T) {
	url, pid := os.Getenv("AGENTFLY_SERVE_URL"), os.Getenv("AGENTFLY_SERVE_PID")
	if url == "" || pid == "" {
		t.Skip("AGENTFLY_SERVE_URL and AGENTFLY_SERVE_PID name no server; scripts/test_serve.sh sets them")
	}
	seconds := 60
	if v := os.Getenv("AGENTFLY_SERVE_SECONDS"); v != "" {
		var err error
		seconds, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	l := load{url: url, clients: 64, end: time.Now().Add(time.Duration(seconds) * time.Second), tokens: 32, abort: 2 * time.Second}
	memory := []int{}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				memory = append(memory, residentMiB(t, pid))
			}
		}
	})
	got := l.run(t)
	close(stop)
	wait.Wait()
	require.Eventually(t, func() bool {
		return gauge(t, url, "num_requests_running") == 0 && gauge(t, url, "num_requests_waiting") == 0 && gauge(t, url, "kv_cache_usage_perc") == 0
	}, 5*time.Second, 10*time.Millisecond, "every slot is free")
	at := func(part float64) int { return memory[int(part*float64(len(memory)-1))] }
	t.Logf("%d done, %d aborted, %d tokens in %d s; resident memory %d MiB after a third, %d after two thirds, %d at the end", got.done, got.aborted, got.tokens, seconds, at(1.0/3), at(2.0/3), at(1))
	require.LessOrEqual(t, float64(at(1)), 1.05*float64(at(1.0/3))+16, "memory is flat: %v", memory)
}

func residentMiB(t *testing.T, pid string) int {
	data, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		t.Error(err)
		return 0
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		t.Error(err)
	}
	return pages * os.Getpagesize() >> 20
}

func gauge(t *testing.T, url, name string) float64 {
	resp, err := http.Get(url + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for _, line := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(line, "vllm:"+name+"{") {
			v, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			require.NoError(t, err)
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
