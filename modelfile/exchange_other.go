//go:build !linux

package modelfile

func exchange(tmp, dir string) error { return swap(tmp, dir) }
