package cgo

import "time"

// NCCLIDBytes is the size of a unique id.
const NCCLIDBytes = 128

// NCCLLibrary is a libnccl.so.2 that was loaded.
type NCCLLibrary struct {
	Path    string
	Version int // 22907 is 2.29.7
}

// NCCLConfig says how a process joins a group of processes that are no ranks of its run.
type NCCLConfig struct {
	Library     string        // "": the one that libtorch uses; tests name theirs
	ID          []byte        // of [NCCLUniqueID]; the same for all ranks
	Rank, World int           // 0 <= Rank < World
	Device      string        // "cuda", "cuda:N"; "cpu" with a test's library
	Timeout     time.Duration // how long a rank may keep the others waiting in one call, > 0
}
