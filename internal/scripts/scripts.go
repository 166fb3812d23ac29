// Package scripts knows files that an interpreter is given by their names. It does not look at files or run them.
package scripts

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var endings = []string{".py", ".js", ".mjs", ".ts", ".sh", ".rb", ".pl", ".jar"}

// Is tells by its name whether a path is a script's.
func Is(path string) bool { return slices.Contains(endings, filepath.Ext(path)) }

// shells take code behind -c alone: their -e is no option for code.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh"}

// MayBeCode tells of an argument of a command that is the name of no file whether it may be code or the name of a module, rather than a script that is
// missing: it stands behind an option of an interpreter for these, as in bash -ec, perl -e and python3 -m, or has a blank.
func MayBeCode(command []string, at int) bool {
	if strings.ContainsAny(command[at], " \t\n") {
		return true
	}
	if at == 0 || !option.MatchString(command[at-1]) {
		return false
	}
	last := command[at-1][len(command[at-1])-1]
	shell := slices.ContainsFunc(command[:at-1], func(arg string) bool { return slices.Contains(shells, filepath.Base(arg)) })
	return last == 'c' || !shell && (last == 'e' || last == 'm')
}

var option = regexp.MustCompile(`^-[a-z]+$`)
