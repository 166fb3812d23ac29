package cgo

import (
	"fmt"
	"os"
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
