package vllm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/engines"
)

// The weights of a run are called RUN@VERSION on a server, such as calculator-5f1d0c2a9b7e@12, and RUN@unproven while they are
// loaded or after an update that failed; its adapter is agentfly-RUN. A version alone would not do: two runs that share a
// server by mistake both have a version 12, and each would train on what the other one's weights sampled.

// unproven stands for the version of weights that nobody may take into service.
const unproven = "unproven"

// fresh is what vLLM calls the weights that it was started with.
const fresh = "default"

// NewRun makes a name for a run of a job that no other run has.
func NewRun(job string) string {
	const most = 40 // bytes of the job's name
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' {
			return c
		}
		return '_'
	}, job)
	if name == "" {
		name = "run"
	}
	id := make([]byte, 6)
	_, _ = rand.Read(id) // it never fails
	return name[:min(len(name), most)] + "-" + hex.EncodeToString(id)
}

func (o Options) versionName(v int32) string { return o.Run + "@" + strconv.Itoa(int(v)) }
func (o Options) unprovenName() string       { return o.Run + "@" + unproven }
func (o Options) adapterName() string        { return "agentfly-" + o.Run }

// cutVersion splits the name of weights. run is empty where no run gave it.
func cutVersion(name string) (run, version string) {
	if i := strings.LastIndexByte(name, '@'); i > 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

// isUnproven tells whether whoever gave the name did not vouch for the weights.
func isUnproven(name string) bool {
	_, version := cutVersion(name)
	return version == unproven
}

// ours tells whether this run gave the name.
func (o Options) ours(name string) bool {
	run, _ := cutVersion(name)
	return run == o.Run
}

// ForeignError says that somebody else changed a server's weights. It is engines.ErrForeign.
type ForeignError struct{ Got, Want string }

func (e *ForeignError) Error() string {
	found := fmt.Sprintf("the server has weights %q now, not %q: ", e.Got, e.Want)
	if e.Got == fresh { // of weights that this engine cannot load again, see Options.Frozen
		return found + "it was started again, or another program changed them; nothing that they sampled is used. " +
			"Give it the weights that it had; then go on with --resume"
	}
	who := "another run or program"
	if run, _ := cutVersion(e.Got); run != "" {
		who = "another run, " + short(run) + ","
	}
	return found + who + " changed them; nothing that they sampled is used, and the server is left to it. " +
		"Give each run servers of its own, or wait until the other one has ended; then go on with --resume"
}

// Is implements errors.Is.
func (e *ForeignError) Is(target error) bool { return target == engines.ErrForeign }

// judge is the error of a version that is not the one that requests are to be answered with: another run's, or one that says
// that the server was started again or missed an update, which loading the current weights repairs.
func (r *replica) judge(got string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.foreign(got) {
		return &ForeignError{got, r.version}
	}
	return &versionError{got}
}

// foreign tells whether neither this engine nor the server's start gave the name. A server that is never updated must keep
// the weights that it was found with, through a start too.
func (r *replica) foreign(got string) bool {
	switch {
	case got == r.version || r.options.ours(got):
		return false
	case !r.loaded && isUnproven(r.version):
		return false
	case r.options.Frozen:
		return true
	}
	return got != fresh && got != r.born
}

// isMine returns a ForeignError when a server that can be updated has another run's weights.
func (r *replica) isMine(ctx context.Context) error {
	if !r.info().Control {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.HealthTimeout)
	defer cancel()
	got, err := r.weightVersion(ctx)
	if err != nil {
		return err
	}
	var other *ForeignError
	if err := r.judge(got); errors.As(err, &other) {
		return err
	}
	return nil
}

// lose ends an engine whose servers another run took over. Loading the weights again would take them from that run, which
// would do the same: both would go on, each on what the other one's weights sampled in between.
func (e *Engine) lose(of *replica, err error) {
	if of != nil {
		err = fmt.Errorf("%s: %w", of.url, err)
	}
	e.mu.Lock()
	if e.lost == nil {
		e.lost = err
	}
	e.mu.Unlock()
	for _, r := range e.replicas {
		r.fail(behind, err)
	}
}

// isLost is why the engine ended, or nil.
func (e *Engine) isLost() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

// unload removes the run's adapter from the server's list. Its folder goes with the run.
func (r *replica) unload() {
	r.mu.Lock()
	adapted, state := r.adapted, r.state
	r.mu.Unlock()
	if !adapted || state == down {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.options.HealthTimeout)
	defer cancel()
	_ = r.call(ctx, http.MethodPost, "/v1/unload_lora_adapter", map[string]any{"lora_name": r.options.adapterName()}, nil) // one that stays is only a name
}
