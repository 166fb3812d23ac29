package vllm

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The server that a job starts answers nobody but the job: its routes of development let anyone who reaches the port change
// the weights. The key stands in no argument and in no file.
func TestServedRoutesNeedTheKey(t *testing.T) {
	var notes []string
	var folder string
	k := keepFake(t, &notes, func(o *ServeOptions) { folder = o.Folder })
	defer func() { require.NoError(t, k.Close()) }()
	require.Len(t, k.APIKey(), 64)
	ask := func(method, path, key string) int {
		q, err := http.NewRequestWithContext(t.Context(), method, k.URL()+path, strings.NewReader("{}"))
		require.NoError(t, err)
		if key != "" {
			q.Header.Set("Authorization", "Bearer "+key)
		}
		reply, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		reply.Body.Close()
		return reply.StatusCode
	}
	require.Equal(t, 200, ask("GET", "/health", ""))
	for _, path := range []string{"/pause", "/collective_rpc", "/sleep?mode=keep&level=1", "/reset_prefix_cache", "/update_weight_version"} {
		require.Equal(t, 401, ask("POST", path, ""), path)
		require.Equal(t, 401, ask("POST", path, "guess"), path)
	}
	require.Equal(t, 200, ask("POST", "/reset_prefix_cache", k.APIKey()))
	for _, arg := range ServeArgs(k.options) {
		require.NotContains(t, arg, k.APIKey())
	}
	require.Contains(t, strings.Join(ServeArgs(k.options), " "), "--middleware agentfly_transfer.Guard")
	require.NoError(t, filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		require.NotContains(t, string(data), k.APIKey(), path)
		return err
	}))
	key := k.APIKey()
	k.kill(t)
	within(t, "it is started again", func() bool { return k.Restarts() == 1 })
	require.Equal(t, key, k.APIKey(), "the engine's stays right")
	require.Equal(t, 200, ask("POST", "/reset_prefix_cache", key))
	var again []string
	other := keepFake(t, &again, nil)
	require.NotEqual(t, key, other.APIKey(), "each server has its own")
	require.NoError(t, other.Close())
	require.NotContains(t, strings.Join(notes, " "), key)
}

// An empty entry of PYTHONPATH is the working folder, whose modules would stand before vLLM's.
func TestServedPythonPath(t *testing.T) {
	for before, want := range map[string]string{"": "FOLDER", "/a:/b": "FOLDER:/a:/b", ":/a": "FOLDER:/a", "/a:": "FOLDER:/a", "::": "FOLDER"} {
		require.Equal(t, strings.Replace(want, "FOLDER", "/f", 1), pythonPath("/f", before), before)
	}
	t.Setenv("PYTHONPATH", "")
	folder := t.TempDir()
	t.Setenv(fakeServer, folder)
	p, err := Serve(t.Context(), ServeOptions{Command: os.Args[0], Model: "m", Folder: folder, Timeout: 20 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	log, err := os.ReadFile(p.Log)
	require.NoError(t, err)
	require.Contains(t, string(log), "PYTHONPATH="+folder+"\n")
}

// The same of the real server and the extension's Guard: vLLM's own key guards /v1 and /inference alone.
func TestRealGuard(t *testing.T) {
	url := realURL(t)
	if real.kept == nil {
		t.Skip("AGENTFLY_VLLM_URL names a server that somebody else started; leave it out")
	}
	key := real.kept.APIKey()
	ask := func(method, path, key string) int {
		q, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader("{}"))
		require.NoError(t, err)
		q.Header.Set("Content-Type", "application/json")
		if key != "" {
			q.Header.Set("Authorization", "Bearer "+key)
		}
		reply, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		reply.Body.Close()
		return reply.StatusCode
	}
	for _, path := range []string{"/health", "/ping", "/metrics"} {
		require.Equal(t, 200, ask("GET", path, ""), path)
	}
	for method, paths := range map[string][]string{
		"GET": {"/weight_info", "/openapi.json", "/is_paused", "/server_info", "/v1/models", "/docs", "//health/../weight_info", "/metrics/../weight_info"},
		"POST": {
			"/collective_rpc", "/sleep?level=1", "/wake_up", "/reset_prefix_cache", "/pause?mode=keep", "/resume", "/update_weight_version",
			"/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/inference/v1/generate", "/v1/load_lora_adapter", "/tokenize",
		},
	} {
		for _, path := range paths {
			require.Equal(t, 401, ask(method, path, ""), path)
			require.Equal(t, 401, ask(method, path, key[1:]), path)
		}
	}
	require.Equal(t, 200, ask("POST", "/reset_prefix_cache", key))
	require.Equal(t, 200, ask("GET", "/weight_info", key))
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range append(commands, real.kept.Log()) {
		data, _ := os.ReadFile(file) // a process may be gone
		require.NotContains(t, string(data), key, file)
	}
}

// What a server or its log says reaches a terminal in errors and notes: without what a terminal would obey.
func TestTextsOfServersHoldNoEscapes(t *testing.T) {
	evil := "a\x1b]0;title\x07b\u009b2Jc\rd\x7f"
	require.Equal(t, "a\uFFFD]0;title\uFFFDb\uFFFD2Jc d\uFFFD", short(evil))
	log := filepath.Join(t.TempDir(), "vllm.log")
	require.NoError(t, os.WriteFile(log, []byte("first\n"+evil+"\n"), 0o600))
	foreign := &ForeignError{evil + "@1", "mine@1"}
	status := newStatusError(500, http.Header{}, []byte(`{"error": {"message": "a\u001b[2J"}}`))
	server := Server{URL: "http://h", Release: evil, Model: evil}
	for _, text := range []string{tail(log), foreign.Error(), status.Error(), server.String()} {
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\u009b")
		require.NotContains(t, text, "\x07")
	}
}
