package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// A run is looked at in Chromium while it trains: its curves grow, its trajectories come, and a token of the page is the store's.
func TestViewWhileARunTrains(t *testing.T) {
	needTorch(t)
	chromium := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && chromium == "" {
			chromium = path
		}
	}
	if chromium == "" {
		t.Skip("chromium is missing; install it: apt-get install chromium-headless-shell")
	}
	dir := t.TempDir()
	address := "127.0.0.1:" + freePort(t)
	ctx, stop := context.WithCancel(context.Background())
	var said strings.Builder
	viewing := make(chan int, 1)
	go func() {
		viewing <- agentfly.Run(ctx, []string{"agentfly", "view", dir, "--listen", address}, strings.NewReader(""), io.Discard, &said)
	}()
	require.Eventually(t, func() bool {
		reply, err := http.Get("http://" + address + "/api/runs")
		if err == nil {
			reply.Body.Close()
		}
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	tab, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	defer cancel()
	tab, cancel = chromedp.NewContext(tab)
	defer cancel()
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate("http://"+address+"/#/overview")))
	until := func(code string) {
		t.Helper()
		require.Eventually(t, func() bool {
			ok, err := chromedp.Run(tab, chromedp.Evaluate[bool]("!!("+code+")"))
			return err == nil && ok
		}, 2*time.Minute, 100*time.Millisecond, code)
	}
	until("document.body.innerText.includes('No run in ')")

	trained := make(chan int, 1)
	go func() {
		trained <- agentfly.Run(t.Context(), []string{"agentfly", "train", "examples/tiny.yaml", "--output", filepath.Join(dir, "tiny"), "--set", "trainer.steps=30"}, strings.NewReader(""), io.Discard, io.Discard)
	}()
	steps := "Number(document.querySelector('#state')?.innerText.split(' ')[0])"
	metrics := filepath.Join(dir, "tiny", "metrics.jsonl")
	require.Eventually(t, func() bool {
		data, _ := os.ReadFile(metrics)
		return strings.Contains(string(data), `"reward/mean"`)
	}, 2*time.Minute, time.Millisecond)
	control := func(action string) {
		status, _, errs := command("", "control", filepath.Join(dir, "tiny"), action)
		require.Zero(t, status, errs)
	}
	control("pause") // the page looks for new runs every ten seconds, and is to see this one train
	until(steps + " >= 1 && document.querySelectorAll('.card canvas').length > 5")
	drawn, err := chromedp.Run(tab, chromedp.Evaluate[string]("window.first = document.querySelector('.card canvas').toDataURL()"))
	require.NoError(t, err)
	require.NotEmpty(t, drawn)
	control("resume")
	until("document.querySelector('.card canvas').toDataURL() != window.first")
	require.Equal(t, 0, <-trained)
	until(steps + " == 30")

	db, err := store.OpenReader(filepath.Join(dir, "tiny", store.File))
	require.NoError(t, err)
	defer db.Close()
	record, err := db.Record(t.Context(), "train-7-1-3")
	require.NoError(t, err)
	s := record.Trajectory.Samples[0]
	at := 0
	for !s.ResponseMask[at] {
		at++
	}
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate("http://"+address+"/#/trajectory?id=train-7-1-3&show=tokens&token="+strconv.Itoa(at))))
	until("document.querySelector('#tokens .on')")
	text, err := chromedp.Run(tab, chromedp.Evaluate[string](`JSON.stringify(Object.fromEntries([...document.querySelectorAll('#token span')].map(s => [s.firstChild.textContent.trim(), s.querySelector('b').innerText])))`))
	require.NoError(t, err)
	facts := map[string]string{}
	require.NoError(t, json.Unmarshal([]byte(text), &facts))
	require.Equal(t, "1", facts["mask"])
	for name, want := range map[string]float32{"sampling logprob": s.SamplingLogprobs[at], "trainer logprob": record.Updates[0].OldLogprobs[at], "advantage": record.Updates[0].Advantages[at], "entropy": record.Updates[0].Entropy[at]} {
		var got float64
		require.NoError(t, json.Unmarshal([]byte(facts[name]), &got), "%v", facts)
		require.InDelta(t, float64(want), got, 1e-6, name)
	}
	stop()
	require.Equal(t, 0, <-viewing, said.String())
}
