package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/wording"
)

// weights know the names of the weight versions. The engine counts its updates; the server gives each count the name that
// a client told it. While the server is paused with keep, an update holds the engine between two steps.
type weights struct {
	mu     sync.Mutex // held by whoever changes something, across calls of the engine
	frozen *frozen

	names struct {
		sync.RWMutex
		of     map[int32]string
		latest int32
	}
}

// frozen is an update of the engine that waits for resume.
type frozen struct {
	release chan struct{}
	done    chan error
}

// keptVersions is how many versions have names; a completion that saw an older one tells its number.
const keptVersions = 1024

func (w *weights) init() {
	w.names.of = map[int32]string{0: "default"} // vLLM's name of the weights that it started with
}

// label is the name of an engine's version.
func (w *weights) label(version int32) string {
	w.names.RLock()
	defer w.names.RUnlock()
	if name, ok := w.names.of[version]; ok {
		return name
	}
	return strconv.Itoa(int(version))
}

func (w *weights) current() (int32, string) {
	w.names.RLock()
	defer w.names.RUnlock()
	return w.names.latest, w.names.of[w.names.latest]
}

func (w *weights) set(version int32, name string) {
	w.names.Lock()
	defer w.names.Unlock()
	w.names.latest = version
	w.names.of[version] = name
	delete(w.names.of, version-keptVersions)
}

// freeze holds the engine between two steps until thaw. The version after it has the same name until another is given.
func (w *weights) freeze(ctx context.Context, s *Server) error {
	version, name := w.current()
	f := &frozen{release: make(chan struct{}), done: make(chan error, 1)}
	reached := make(chan struct{})
	go func() { // joined by thaw, or here when the barrier is not reached
		f.done <- s.o.Engine.Update(context.WithoutCancel(ctx), engines.Weights{Version: version + 1, Apply: func(context.Context) error {
			close(reached)
			<-f.release
			return nil
		}})
	}()
	select {
	case <-reached:
		w.set(version+1, name)
		w.frozen = f
		return nil
	case err := <-f.done:
		return fmt.Errorf("serve: pause: the engine cannot hold its requests: %w", err)
	}
}

// thaw lets the engine go on; without a freeze it does nothing.
func (w *weights) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen != nil {
		close(w.frozen.release)
		<-w.frozen.done // it ended, or its engine is closed, which the next request will tell
		w.frozen = nil
	}
}

// change runs apply between two steps of the engine; the weights are called name afterwards.
func (w *weights) change(ctx context.Context, s *Server, name *string, apply func(context.Context) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	version, old := w.current()
	if w.frozen != nil {
		if err := apply(ctx); err != nil {
			return err
		}
		w.set(version, or(name, old))
		return nil
	}
	return s.o.Engine.Update(ctx, engines.Weights{Version: version + 1, Apply: func(ctx context.Context) error {
		if err := apply(ctx); err != nil {
			return err
		}
		w.set(version+1, or(name, old)) // before a token of the new version is sampled
		return nil
	}})
}

func nothing(context.Context) error { return nil }

func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	mode := r.URL.Query().Get("mode")
	if mode == "" {
		mode = "abort"
	}
	if err := s.pauseIn(r.Context(), mode); err != nil {
		s.fail(w, err)
		return
	}
	s.reply(w, http.StatusOK, map[string]string{"status": "paused"})
}

func (s *Server) pauseIn(ctx context.Context, mode string) error {
	if mode != "abort" && mode != "wait" && mode != "keep" {
		return badf("mode", "mode is %q, allowed are abort, wait and keep", wording.Clip(mode, maxName))
	}
	idle, err := s.hold(ctx, mode)
	if err != nil || idle == nil {
		return err
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hold closes the gate and freezes the engine where the mode wants that; idle is what the other modes wait for, nil for
// nothing.
func (s *Server) hold(ctx context.Context, mode string) (idle <-chan struct{}, err error) {
	s.weights.mu.Lock()
	defer s.weights.mu.Unlock()
	idle = s.gate.pause(mode == "abort")
	switch {
	case s.weights.frozen != nil:
		return nil, nil // what runs stands still already, or was aborted just now
	case mode == "keep":
		if err := s.weights.freeze(ctx, s); err != nil {
			s.gate.resume()
			return nil, err
		}
		return nil, nil
	}
	return idle, nil
}

func (s *Server) resume(w http.ResponseWriter, _ *http.Request) {
	s.weights.thaw()
	s.gate.resume()
	s.reply(w, http.StatusOK, map[string]string{"status": "resumed"})
}

func (s *Server) isPaused(w http.ResponseWriter, _ *http.Request) {
	paused, _, _ := s.gate.state()
	s.reply(w, http.StatusOK, map[string]bool{"is_paused": paused})
}

func (s *Server) updateWeightVersion(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Version *string `json:"new_version"`
	}
	release, err := s.read(w, r, &in)
	defer release()
	if err == nil && in.Version == nil {
		err = badf("new_version", "new_version is missing")
	}
	if err == nil {
		err = checkName("new_version", *in.Version)
	}
	if err == nil {
		err = s.weights.change(r.Context(), s, in.Version, nothing)
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	s.reply(w, http.StatusOK, map[string]any{"success": true, "new_version": *in.Version})
}

func (s *Server) weightInfo(w http.ResponseWriter, _ *http.Request) {
	_, name := s.weights.current()
	s.reply(w, http.StatusOK, map[string]string{"weight_version": name})
}

// resetPrefixCache forgets all keys and values. Running requests are computed again, and none is disturbed.
func (s *Server) resetPrefixCache(w http.ResponseWriter, r *http.Request) {
	if err := s.weights.change(r.Context(), s, nil, nothing); err != nil {
		s.fail(w, err)
		return
	}
	s.reply(w, http.StatusOK, map[string]bool{"success": true})
}

// collectiveRPC offers the one method that a trainer needs.
func (s *Server) collectiveRPC(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Method string `json:"method"`
		Kwargs struct {
			Path string `json:"weights_path"`
		} `json:"kwargs"`
		Args    json.RawMessage `json:"args"`
		Timeout *float64        `json:"timeout"`
	}
	release, err := s.read(w, r, &in)
	defer release()
	switch {
	case err != nil:
	case in.Method != "reload_weights":
		err = badf("method", "method is %q; this server offers reload_weights alone", wording.Clip(in.Method, maxName))
	case in.Kwargs.Path == "":
		err = badf("kwargs", "kwargs.weights_path is missing")
	default:
		err = s.weights.change(r.Context(), s, nil, func(ctx context.Context) error { return s.o.Reload(ctx, in.Kwargs.Path) })
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	s.reply(w, http.StatusOK, map[string][]any{"results": {nil}})
}
