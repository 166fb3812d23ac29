package view

import (
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A hundred thousand trajectories: the first view within a second, a filter within 200 ms, scrolling without lost frames. scripts/bench_view.sh makes
// the store and prints the figures.
func TestAHundredThousand(t *testing.T) {
	dir := os.Getenv("AGENTFLY_VIEW_BENCH")
	if dir == "" {
		t.Skip("AGENTFLY_VIEW_BENCH names no folder of a large run; make bench-view makes one")
	}
	s, err := New(dir, Options{Errors: io.Discard, Decode: func(string) (func([]int32) string, bool) { return func([]int32) string { return " token" }, true }})
	require.NoError(t, err)
	h := httptest.NewServer(s)
	defer h.Close()
	defer s.Close()
	b := chromium(t, 1280, 900)
	began := time.Now()
	b.open(h.URL + "/#/overview")
	b.until("document.querySelectorAll('.card canvas').length > 10")
	first := time.Since(began)
	t.Logf("first view, 10,000 steps: %d ms", first.Milliseconds())
	x := &served{Server: s, url: h.URL}
	began = time.Now()
	list := get[answered](t, x, "/api/trajectories", url.Values{"run": {"run"}})
	t.Logf("first page of trajectories: %d ms, %d of them are read", time.Since(began).Milliseconds(), list.Total)
	x.whole(t, "run")
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("all are read: %d ms more; heap %d MB", time.Since(began).Milliseconds(), m.HeapAlloc>>20)
	slowest := time.Duration(0)
	for _, query := range []string{"", "sort=reward&order=up", "sort=seconds", "max=0.3&stop=max_tokens", "tool=search&cause=broken", "from=9000&to=9500", "text=begin+again", "text=zzz", "failed=1"} {
		var all []time.Duration
		for range 7 {
			s.runs.open["run"].mu.Lock()
			s.runs.open["run"].index.changes++ // no answer is kept
			s.runs.open["run"].mu.Unlock()
			q, _ := url.ParseQuery(query)
			q.Set("run", "run")
			began := time.Now()
			get[answered](t, x, "/api/trajectories", q)
			all = append(all, time.Since(began))
		}
		slices.Sort(all)
		t.Logf("filter %-28q median %3d ms, most %3d ms", query, all[3].Milliseconds(), all[6].Milliseconds())
		slowest = max(slowest, all[3])
	}
	b.open(h.URL + "/#/trajectories")
	b.until("document.querySelectorAll('tr[data-row]').length > 20")
	frames := js[[]float64](b, `(async () => { const l = document.getElementById('list'), d = []; let last = performance.now();
		for (let i = 0; i < 300; i++) { l.scrollTop += 240; await new Promise(requestAnimationFrame); const t = performance.now(); d.push(t - last); last = t; } return d; })()`)
	slices.Sort(frames)
	t.Logf("scrolling: a frame in %.1f ms (median), %.1f ms (95%%), %.1f ms (longest)", frames[150], frames[285], frames[299])
	require.Less(t, first, time.Second)
	require.Less(t, slowest, 200*time.Millisecond)
	require.Less(t, frames[150], 17.5)
}
