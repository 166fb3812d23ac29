package cgo

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// GroupConfig says how a process joins the ranks of a data-parallel run.
type GroupConfig struct {
	Rank, World int           // 0 <= Rank < World
	LocalRank   int           // index of the process on its machine, and of its CUDA device
	Address     string        // where the store is served
	Port        int           //
	Serve       bool          // rank 0 serves the store itself; false where a launcher does
	Prefix      string        // of the group's keys in the store
	Device      string        // of the tensors: "cpu", "cuda", "cuda:N"
	Timeout     time.Duration // how long a rank may keep the others waiting, > 0
	Sharding    Sharding      // of the optimizers that use the group
	First       int           // what errors call the group's rank 0: its number in the run
	Stride      int           // from one rank's number to the next one's; 0: 1
}

// Sharding says what of a model's training state is spread over the ranks, and when they exchange it.
type Sharding int

// The values are those of af.h. Gradients are whole on every rank until they are summed, since micro-batches add to them.
const (
	// ZeRO1 spreads AdamW's moments. Gradients are summed and parameters gathered within [Optimizer.Step].
	ZeRO1 Sharding = iota
	// FSDP sums gradients layer by layer while the step's last backward goes on, and gathers parameters layer by layer while the
	// next forward does. Of a model that computes in bfloat16 the float32 parameters are spread too, and the rounded ones gathered.
	FSDP
)

// Shardings are the names of the values in a job.
var Shardings = [...]string{ZeRO1: "zero1", FSDP: "fsdp"}

// ShardingOf is the value of that name; ZeRO1 where none has it.
func ShardingOf(name string) Sharding { return Sharding(max(0, slices.Index(Shardings[:], name))) }

// Traffic is what this rank has received from the others, and how long its collectives took; those of CUDA tensors have no times.
type Traffic struct {
	Sums, Gathers, Rest int64         // bytes: reduce-scatters, all-gathers, everything else
	Busy                time.Duration // in which a reduce-scatter or an all-gather was going on
	Waited              time.Duration // of it in which this rank did nothing but wait for one
}

// Since is what came after an earlier reading.
func (t Traffic) Since(before Traffic) Traffic {
	return Traffic{t.Sums - before.Sums, t.Gathers - before.Gathers, t.Rest - before.Rest, t.Busy - before.Busy, t.Waited - before.Waited}
}

// GroupFromEnv reads the variables that torchrun sets: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. ok is
// false where neither RANK nor WORLD_SIZE is set: the process is alone. Device and Timeout are left to the caller.
func GroupFromEnv() (c GroupConfig, ok bool, err error) {
	if os.Getenv("RANK") == "" && os.Getenv("WORLD_SIZE") == "" {
		return c, false, nil
	}
	number := func(name, missing string) int {
		text := os.Getenv(name)
		if text == "" {
			text = missing
		}
		n, e := strconv.Atoi(text)
		if err == nil && (e != nil || n < 0) {
			err = fmt.Errorf("cgo: ranks: the variable %s is %q, a number is needed; torchrun sets it with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (%w)", name, text, ErrInput)
		}
		return n
	}
	c.Rank, c.World, c.LocalRank, c.Port = number("RANK", ""), number("WORLD_SIZE", ""), number("LOCAL_RANK", "0"), number("MASTER_PORT", "29500")
	if c.Address = os.Getenv("MASTER_ADDR"); c.Address == "" {
		c.Address = "127.0.0.1"
	}
	c.Serve = os.Getenv("TORCHELASTIC_USE_AGENT_STORE") != "True"
	if n := os.Getenv("TORCHELASTIC_RESTART_COUNT"); n != "" { // the launcher's store outlives a restart of the ranks
		c.Prefix = "attempt_" + n
	}
	if err == nil && (c.World < 1 || c.Rank >= c.World) {
		err = fmt.Errorf("cgo: ranks: RANK is %d and WORLD_SIZE %d; ranks count from 0 (%w)", c.Rank, c.World, ErrInput)
	}
	return c, err == nil, err
}
