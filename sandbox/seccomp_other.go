//go:build !amd64

package sandbox

// deniedHere are those that only this architecture has.
var deniedHere []uint32
