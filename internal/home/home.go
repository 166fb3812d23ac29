// Package home reads the ~ of paths that no shell has read: of job files, flags such as --output=~/x, and variables of the environment; and says
// where AgentFly's cache is. It does not resolve paths: what they are relative to is decided by whoever reads them.
package home

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Expand is the path with the home folder in place of a ~ at its beginning, which stands alone or before a slash. ./~ is a folder of that name.
func Expand(path string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return path
	}
	dir, err := os.UserHomeDir()
	if err != nil { // nobody knows where it is: the path names a folder that is not there
		return path
	}
	return filepath.Join(dir, rest)
}

// Cache is a path in AgentFly's cache, $XDG_CACHE_HOME/agentfly or ~/.cache/agentfly. As for the scripts that fetch into it, a relative
// XDG_CACHE_HOME begins at the working folder.
func Cache(below ...string) (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		dir, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("there is no cache folder: %w; set XDG_CACHE_HOME", err)
		}
		base = filepath.Join(dir, ".cache")
	}
	return filepath.Abs(filepath.Join(append([]string{base, "agentfly"}, below...)...))
}
