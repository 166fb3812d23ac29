//go:build !linux

package procgroup

// Mark is nothing here: the system cannot tell whose a process is.
func Mark() string { return "" }

// CollectMarked finds nothing here.
func CollectMarked(string) {}

// CollectBearers finds nothing here.
func CollectBearers(string, string) {}

// Collect finds nothing here.
func Collect() []string { return nil }
