package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

type createArgs struct {
	Path    string `json:"path" doc:"of the new file, relative to the workspace; missing folders are made"`
	Content string `json:"content" doc:"text of the file"`
}

func create(_ context.Context, f *folder, a createArgs) (string, error) {
	name, err := f.local(a.Path)
	if err != nil {
		return "", err
	}
	if _, err := f.root.Lstat(name); err == nil {
		return "", fmt.Errorf("%q exists; change it with file_edit or choose another name", f.shown(name))
	}
	if err := f.change(change{name: name, after: a.Content, created: true}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s has %s", f.shown(name), lines(a.Content)), nil
}

func lines(text string) string {
	if n := len(split(text)); n != 1 {
		return fmt.Sprintf("%d lines", n)
	}
	return "1 line"
}

// text reads the file that an argument names.
func (f *folder) text(path string) (name, text string, err error) {
	if name, err = f.local(path); err == nil {
		text, err = f.read(name)
	}
	return name, text, err
}

// split are the lines of a text.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

type readArgs struct {
	Path  string `json:"path" doc:"relative to the workspace"`
	First int    `json:"first,omitempty" doc:"first line, from 1"`
	Last  int    `json:"last,omitempty" doc:"last line"`
}

func read(_ context.Context, f *folder, a readArgs) (string, error) {
	name, text, err := f.text(a.Path)
	if err != nil {
		return "", err
	}
	all := split(text)
	if len(all) == 0 {
		return fmt.Sprintf("%s is empty", f.shown(name)), nil
	}
	first, last := max(a.First, 1), a.Last
	if last <= 0 || last > len(all) {
		last = len(all)
	}
	if first > last {
		return "", fmt.Errorf("%q has %s; there are none from %d to %d", f.shown(name), lines(text), first, last)
	}
	return numbered(all, first, last), nil
}

func numbered(all []string, first, last int) string {
	var b strings.Builder
	for n := first; n <= last; n++ {
		fmt.Fprintf(&b, "%d\t%s\n", n, all[n-1])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

type editArgs struct {
	Path string `json:"path" doc:"relative to the workspace"`
	Old  string `json:"old" doc:"text that is replaced; it must occur exactly once"`
	New  string `json:"new" doc:"text that takes its place"`
}

func edit(_ context.Context, f *folder, a editArgs) (string, error) {
	name, text, err := f.text(a.Path)
	if err != nil {
		return "", err
	}
	n := strings.Count(text, a.Old)
	switch {
	case a.Old == "":
		return "", errors.New("old is empty; give the text that is replaced")
	case a.Old == a.New:
		return "", errors.New("old and new are the same")
	case n == 0:
		return "", fmt.Errorf("the text old does not occur in %q; file_read shows the file", f.shown(name))
	case n > 1:
		return "", fmt.Errorf("the text old occurs %d times in %q; give more of the text around it", n, f.shown(name))
	}
	before, _, _ := strings.Cut(text, a.Old)
	after := strings.Replace(text, a.Old, a.New, 1)
	if err := f.change(change{name: name, before: text, after: after}); err != nil {
		return "", err
	}
	all := split(after)
	if len(all) == 0 {
		return f.shown(name) + " is empty now", nil
	}
	at := strings.Count(before, "\n") + 1
	first := max(1, min(at-2, len(all)))
	last := min(len(all), at+strings.Count(a.New, "\n")+2, first+50)
	return f.shown(name) + " is now:\n" + numbered(all, first, last), nil
}

type undoArgs struct {
	Path string `json:"path" doc:"relative to the workspace"`
}

func undo(_ context.Context, f *folder, a undoArgs) (string, error) {
	name, err := f.local(a.Path)
	if err != nil {
		return "", err
	}
	at := len(f.history) - 1
	for at >= 0 && f.history[at].name != name {
		at--
	}
	if at < 0 {
		return "", fmt.Errorf("there is no change of %q to take back", f.shown(name))
	}
	c := f.history[at]
	if text, err := f.read(name); err != nil {
		return "", err
	} else if text != c.after {
		return "", fmt.Errorf("%q was changed by a program since; nothing was taken back", f.shown(name))
	}
	if c.created {
		err = f.root.Remove(name)
		if err != nil {
			err = f.explain(name, err)
		}
	} else {
		err = f.write(name, c.after, c.before)
	}
	if err != nil {
		return "", err
	}
	f.history = append(f.history[:at], f.history[at+1:]...)
	if c.created {
		return f.shown(name) + " is removed again", nil
	}
	return fmt.Sprintf("%s has %s again", f.shown(name), lines(c.before)), nil
}

type listArgs struct {
	Path string `json:"path,omitempty" doc:"a folder; default: the whole workspace"`
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

func list(ctx context.Context, f *folder, a listArgs) (string, error) {
	name, err := f.local(a.Path)
	if err != nil {
		return "", err
	}
	var out []string
	err = fs.WalkDir(f.root.FS(), name, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && at == name:
			return f.explain(name, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || at == name && d.IsDir():
			return nil
		case len(out) == maxEntries:
			out = append(out, fmt.Sprintf("[more than %d; name a folder]", maxEntries))
			return errEnough
		}
		out = append(out, f.shown(at)+suffix(d))
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return "", err
	}
	if len(out) == 0 {
		return "there are no files", nil
	}
	return strings.Join(out, "\n"), nil
}

// suffix says what an entry is.
func suffix(d fs.DirEntry) string {
	info, err := d.Info()
	switch {
	case d.IsDir():
		return "/"
	case err != nil:
		return ""
	case d.Type()&fs.ModeSymlink != 0:
		return " (link)"
	case !d.Type().IsRegular():
		return " (no file)"
	default:
		return fmt.Sprintf(" (%d bytes)", info.Size())
	}
}

// clip bounds a line that is shown.
func clip(line string) string { return wording.Clip(line, 300) }
