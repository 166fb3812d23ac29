package wording

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// DidYouMean returns ` (did you mean "x"?)` for the known name nearest to name, or "" when none is near.
func DidYouMean(name string, known []string) string {
	n := Nearest(name, known)
	if n == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", n)
}

// JSONReason shortens an error of encoding/json to what a model or a user can mend.
func JSONReason(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
