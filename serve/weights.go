package serve

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/agentfly/agentfly/engines"
)

// weights know the names of the weight versions. The engine counts its updates; the server gives each count the name that
// a client told it. While the server is paused with keep, an update holds the engine between two steps.
type weights struct {
	engine engines.Engine
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

func (w *weights) init(e engines.Engine) {
	w.engine = e
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
func (w *weights) freeze(ctx context.Context) error {
	version, name := w.current()
	f := &frozen{release: make(chan struct{}), done: make(chan error, 1)}
	reached := make(chan struct{})
	go func() { // joined by thaw, or here when the barrier is not reached
		f.done <- w.engine.Update(context.WithoutCancel(ctx), engines.Weights{Version: version + 1, Apply: func(context.Context) error {
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
func (w *weights) change(ctx context.Context, name *string, apply func(context.Context) error) error {
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
	return w.engine.Update(ctx, engines.Weights{Version: version + 1, Apply: func(ctx context.Context) error {
		if err := apply(ctx); err != nil {
			return err
		}
		w.set(version+1, or(name, old)) // before a token of the new version is sampled
		return nil
	}})
}

// span says which weights sampled the tokens from Start to End.
type span struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// spans joins the versions of tokens.
func (w *weights) spans(tokens []engines.Token) []span {
	out := []span{}
	for i, t := range tokens {
		label := w.label(t.Version)
		if n := len(out); n > 0 && out[n-1].Version == label {
			out[n-1].End = i + 1
		} else {
			out = append(out, span{label, i, i + 1})
		}
	}
	return out
}
