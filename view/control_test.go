package view

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/view/viewtest"
)

// Controlling a run takes the key and a page of this server, or the key and the header of a program; reading goes on without.
func TestControlTakesTheKey(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": {Steps: 1, Groups: 1, Each: 1}})
	ask := func(s *Server, method, path string, headers map[string]string) (int, string) {
		t.Helper()
		r := httptest.NewRequest(method, path, nil)
		r.Host = "localhost:8200"
		for k, v := range headers {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	pause := "/api/control?run=a&do=pause"
	status, said := ask(x.Server, "POST", pause, map[string]string{"X-Agentfly": "1", "Authorization": "Bearer "})
	require.Equal(t, 403, status)
	require.Contains(t, said, "this page only shows: start agentfly view with --api-key")

	s, err := New(x.dir, Options{ControlKey: "secret"})
	require.NoError(t, err)
	defer s.Close()
	key := func(more ...string) map[string]string {
		out := map[string]string{"X-Agentfly": "1", "Authorization": "Bearer secret"}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	path := filepath.Join(x.dir, "a", runfolder.ControlFile)
	for _, c := range []struct {
		status       int
		method, path string
		headers      map[string]string
	}{
		{200, "GET", "/", nil},
		{200, "GET", "/api/runs", nil},
		{405, "POST", "/api/runs", key()},
		{405, "GET", pause, key()},
		{403, "POST", pause, map[string]string{"Authorization": "Bearer secret"}},
		{403, "POST", pause, key("Origin", "http://evil.example")},
		{403, "POST", pause, key("Origin", "http://localhost:8201")},
		{403, "POST", pause, key("Origin", "null")},
		{403, "POST", pause, key("Sec-Fetch-Site", "cross-site")},
		{403, "POST", pause, key("Sec-Fetch-Site", "same-site")},
		{403, "POST", pause, key("Sec-Fetch-Site", "none")},
		{401, "POST", pause, map[string]string{"X-Agentfly": "1"}},
		{401, "POST", pause, key("Authorization", "Bearer wrong")},
		{401, "POST", pause + "&key=secret", map[string]string{"X-Agentfly": "1"}},
		{409, "POST", pause, key()}, // nobody trains it
		{400, "POST", "/api/control?run=a&do=puase", key()},
		{404, "POST", "/api/control?run=../a&do=pause", key()},
	} {
		status, said := ask(s, c.method, c.path, c.headers)
		require.Equal(t, c.status, status, "%s %s %v: %s", c.method, c.path, c.headers, said)
		require.NoFileExists(t, path)
	}

	host, err := os.Hostname()
	require.NoError(t, err)
	require.NoError(t, runfolder.New(filepath.Join(x.dir, "a"), false).WriteNow(runfolder.Now{Host: host, PID: os.Getpid(), Started: time.Now(), Written: time.Now()}))
	requests := runfolder.NewRequests(filepath.Join(x.dir, "a"))
	status, said = ask(s, "POST", pause, key("Origin", "http://localhost:8200", "Sec-Fetch-Site", "same-origin"))
	require.Equal(t, 200, status, said)
	_, said = ask(s, "GET", "/api/now?run=a", nil)
	require.Contains(t, said, `"control":false`)

	r := httptest.NewRequest("GET", "/?key=secret", nil)
	r.Host = "localhost:8200"
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	require.Equal(t, http.StatusSeeOther, w.Code)
	set := w.Result().Cookies()[0]
	require.True(t, set.HttpOnly && set.SameSite == http.SameSiteStrictMode && strings.HasSuffix(set.Name, "_8200"))
	with := map[string]string{"Cookie": set.Name + "=" + set.Value, "X-Agentfly": "1"}
	_, said = ask(s, "GET", "/api/now?run=a", with)
	require.Contains(t, said, `"control":true`)
	status, said = ask(s, "POST", "/api/control?run=a&do=stop", with)
	require.Equal(t, 200, status, said)
	all, err := requests.Next()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, runfolder.Pause, all[0].Action)
	require.Equal(t, runfolder.Stop, all[1].Action)
	require.Equal(t, "the page", all[1].By)
}

// Where the folder is a run itself, that one is meant by the name of its folder, which its title and its metrics have, and by no name.
func TestTheOnlyRunIsMeantByItsFolder(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"vw": {Steps: 1, Groups: 1, Each: 1}})
	s, err := New(filepath.Join(x.dir, "vw"), Options{ControlKey: "secret"})
	require.NoError(t, err)
	defer s.Close()
	for name, want := range map[string]int{"vw": 409, "": 409, ".": 409, "other": 404, "../vw": 404} { // 409: nobody trains it
		r := httptest.NewRequest("POST", "/api/control?do=pause&run="+name, nil)
		r.Host = "localhost:8200"
		r.Header.Set("X-Agentfly", "1")
		r.Header.Set("Authorization", "Bearer secret")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, "%q: %s", name, w.Body)
	}
	for _, path := range []string{"/api/curves?", "/api/bands?key=reward/mean&", "/api/events?"} {
		ctx, stop := context.WithCancel(t.Context())
		stop() // of events their beginning is enough
		r := httptest.NewRequestWithContext(ctx, "GET", path+"run=vw", nil)
		r.Host = "localhost:8200"
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		require.Equal(t, 200, w.Code, "%s: %s", path, w.Body)
	}
	r := httptest.NewRequest("GET", "/api/now", nil)
	r.Host = "localhost:8200"
	w := httptest.NewRecorder()
	x.Server.ServeHTTP(w, r)
	require.Equal(t, 404, w.Code, "a folder of runs is none: %s", w.Body)
}
