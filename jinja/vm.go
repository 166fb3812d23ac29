package jinja

import (
	"strings"
	"time"
)

// Bounds of one rendering. A real template needs some thousand steps.
const (
	maxSteps     = 5_000_000 // evaluated expressions and statements
	maxBytes     = 128 << 20 // of strings and lists created
	maxRecursion = 200       // nested macro calls and recursive loops
)

// machine is one rendering.
type machine struct {
	lib     *library
	context map[string]any
	now     time.Time
	mark    string // Input.Mark
	steps   int
	bytes   int
	depth   int
}

func (vm *machine) step() error {
	if vm.steps++; vm.steps > maxSteps {
		return raise("Limit", "the rendering takes more than %d steps", maxSteps)
	}
	return nil
}

// charge counts the bytes of a value that is created.
func (vm *machine) charge(n int) error {
	if vm.bytes += n; n < 0 || vm.bytes > maxBytes {
		return raise("Limit", "the rendering creates more than %d bytes", maxBytes)
	}
	return vm.step()
}

// scan counts the work of looking through a string.
func (vm *machine) scan(v any) error {
	if s, ok := text(v); ok {
		return vm.charge(len(s) / 8)
	}
	return nil
}

// multiply counts the work of a product or a quotient of two integers: each word of one meets each of the other.
func (vm *machine) multiply(bitsA, bitsB int) error {
	return vm.chargeTimes(bitsA/64+1, bitsB/512+1)
}

func (vm *machine) chargeTimes(n, times int) error {
	if n > 0 && times > maxBytes/n {
		return vm.charge(maxBytes + 1)
	}
	return vm.charge(n * max(times, 0))
}

// made is a created string.
func (vm *machine) made(s string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return s, vm.charge(len(s))
}

// activation holds the variables of a running function.
type activation struct {
	slots []any
	up    *activation
}

func (fn *function) activate(up *activation) *activation {
	a := &activation{slots: make([]any, len(fn.slots)), up: up}
	for i := range a.slots {
		a.slots[i] = missing
	}
	return a
}

func (a *activation) at(v variable) *any {
	for i := v.up; i > 0; i-- {
		a = a.up
	}
	return &a.slots[v.slot]
}

// state is where a statement runs.
type state struct {
	*machine
	act *activation
	out *strings.Builder
}

// capture runs fn and returns what it wrote.
func (s *state) capture(fn execFn) (string, signal, error) {
	var b strings.Builder
	inner := *s
	inner.out = &b
	sig, err := fn(&inner)
	return b.String(), sig, err
}

// signal says how a statement ended.
type signal uint8

const (
	goOn signal = iota
	stopLoop
	nextRound
)

type (
	evalFn func(*state) (any, error)
	execFn func(*state) (signal, error)
)

// library holds the functions that templates call by name.
type library struct {
	methods map[string]stringMethod
	filters map[string]filter
	tests   map[string]test
}

func newLibrary() *library {
	return &library{methods: newStringMethods(), filters: newFilters(), tests: newTests()}
}
