package serve

import (
	"net/http"
	"strings"
)

// health is 200 from the first request on: the engine is there before the server.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if _, closed, _ := s.gate.state(); closed {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{"version": s.o.Version})
}

// openAPI lists the routes: clients of vLLM look here for what a server offers.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]map[string]struct{}{}
	for _, r := range s.routes {
		path := strings.ReplaceAll(r.path, "...", "")
		if paths[path] == nil {
			paths[path] = map[string]struct{}{}
		}
		paths[path][strings.ToLower(r.method)] = struct{}{}
	}
	reply(w, http.StatusOK, map[string]any{
		"openapi": "3.1.0", "info": map[string]string{"title": "AgentFly", "version": s.o.Version}, "paths": paths,
	})
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	_, _, running := s.gate.state()
	st := Stats{Running: running, Waiting: max(0, int(s.queue.completions.Load())-running)}
	if s.o.Stats != nil {
		held := st.Waiting // by a pause: the engine does not know of them
		st = s.o.Stats()
		st.Waiting += held
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(s.metrics.page(s.o.Models[0], st))) // the client may be gone
}
