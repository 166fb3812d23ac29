package vllm

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
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

// holding says which weights a replica has.
type holding struct {
	version string // name of those that it proved, or began with
	born    string // name of those that it has after a start
	model   string // what requests name: the served model, or the adapter
	loaded  bool   // this engine has given it weights
	adapted bool   // and those were an adapter
	history []adopted
}

// adopted is a version that a replica was given. Requests in flight may name it and those after it.
type adopted struct {
	serial int
	name   string
	number int32
}

// adopt makes a version the one that new requests are answered with.
func (h *holding) adopt(name, model string, number int32) {
	serial := 0
	if n := len(h.history); n > 0 {
		serial = h.history[n-1].serial + 1
	}
	const most = 1024 // no request lives through so many updates
	if len(h.history) >= most {
		h.history = slices.Clone(h.history[most/2:])
	}
	h.version, h.model = name, model
	h.history = append(h.history, adopted{serial, name, number})
}

// judge is the error of a version that is not the one that requests are to be answered with: another run's, or one that says
// that the server was started again or missed an update, which loading the current weights repairs.
func (h holding) judge(o Options, got string) error {
	if h.foreign(o, got) {
		return &ForeignError{got, h.version}
	}
	return &versionError{got}
}

// foreign tells whether neither this engine nor the server's start gave the name. A server that is never updated must keep
// the weights that it was found with, through a start too.
func (h holding) foreign(o Options, got string) bool {
	switch {
	case got == h.version || o.ours(got):
		return false
	case !h.loaded && isUnproven(h.version):
		return false
	case o.Frozen:
		return true
	}
	return got != fresh && got != h.born
}
