package browser

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
)

// solvers say what to do on a page from what is seen of it at its beginning.
var solvers = map[string]func(v view) []environments.Action{
	"click-test":   func(v view) []environments.Action { return clicks(v.find("button", "")) },
	"focus-text":   func(v view) []environments.Action { return clicks(v.find("textbox", "")) },
	"click-button": func(v view) []environments.Action { return clicks(v.find("button", first(quoted(v.Task)))) },
	"click-link":   func(v view) []environments.Action { return clicks(v.find("text", first(quoted(v.Task)))) },
	"click-dialog": func(v view) []environments.Action { return clicks(v.find("button", "")) },
	"enter-text": func(v view) []environments.Action {
		return append(writes(v.find("textbox", ""), first(quoted(v.Task))), clicks(v.find("button", ""))...)
	},
	"enter-password": func(v view) (out []environments.Action) {
		for _, e := range v.Elements {
			if e.Role == "password" {
				out = append(out, writes(e.Ref, first(quoted(v.Task)))...)
			}
		}
		return append(out, clicks(v.find("button", ""))...)
	},
	"login-user": func(v view) []environments.Action {
		words := append(quoted(v.Task), "", "")
		return slices.Concat(writes(v.find("textbox", ""), words[0]), writes(v.find("password", ""), words[1]), clicks(v.find("button", "")))
	},
	"click-checkboxes": func(v view) (out []environments.Action) {
		for _, name := range strings.Split(between(v.Task, "Select ", " and click Submit"), ", ") {
			if ref := v.find("checkbox", name); name != "nothing" && ref > 0 {
				out = append(out, clicks(ref)...)
			}
		}
		return append(out, clicks(v.find("button", ""))...)
	},
	"click-option": func(v view) []environments.Action {
		return append(clicks(v.find("radio", between(v.Task, "Select ", " and click Submit"))), clicks(v.find("button", ""))...)
	},
	"choose-list": func(v view) []environments.Action {
		return append(writes(v.find("list", ""), between(v.Task, "Select ", " from the list")), clicks(v.find("button", ""))...)
	},
}

// solved are the tasks that have a solver.
func solved() []string { return slices.Sorted(maps.Keys(solvers)) }

// Solution is what the solver of the task says.
func (w *world) Solution(context.Context) ([]environments.Action, error) {
	solve := solvers[w.task]
	if solve == nil {
		return nil, fmt.Errorf("there is no solver of the task %s; those with one are %s", w.task, strings.Join(solved(), ", "))
	}
	return solve(w.seen), nil
}

// find is the number of the first element of a role with a name; "" is any. 0: there is none.
func (v view) find(role, name string) int {
	for _, e := range v.Elements {
		if e.Role == role && (name == "" || e.Name == name) {
			return e.Ref
		}
	}
	return 0
}

func call(name string, args map[string]any) []environments.Action {
	b, _ := wording.JSON(args) // texts and numbers
	return []environments.Action{{Name: name, Arguments: b}}
}

func clicks(ref int) []environments.Action { return call("click", map[string]any{"ref": ref}) }

func writes(ref int, text string) []environments.Action {
	return call("type", map[string]any{"ref": ref, "text": text})
}

var quotes = regexp.MustCompile(`"([^"]*)"`)

// quoted are the words in quotation marks.
func quoted(task string) (out []string) {
	for _, m := range quotes.FindAllStringSubmatch(task, -1) {
		out = append(out, m[1])
	}
	return out
}

func first(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

func between(text, before, behind string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, behind)
	return text
}
