package harbor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/sandbox"
)

// standIns are the images for which the programs of this machine stand in: an image's own content is not there without containers.
var standIns = []string{"debian", "ubuntu", "python", "scratch"}

// reserved are folders of the root that an image cannot have: the system's are this machine's own, and the verifier's are there at the end only.
var reserved = []string{
	"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "logs", "proc", "run", "sbin", "solution", "sys", "tests", "tmp", "usr",
}

// existing are the folders of the root that the images have.
var existing = []string{"home", "media", "mnt", "opt", "root", "srv", "var"}

// recipe is what a Dockerfile makes, in the order of its lines.
type recipe struct {
	image string   // that FROM names
	tops  []string // folders of the root that the lines so far name
	steps []step
	begin string            // the last WORKDIR
	env   map[string]string // of ENV, from what an image has: PATH

	global, args map[string]string // of ARG before FROM, which FROM alone sees, and in the stage
}

// step is a COPY, a RUN or a WORKDIR.
type step struct {
	line   int
	text   string // as it stands in the file, for errors
	copies []string
	name   string       // of what is copied, where it goes into a folder
	chmod  *fs.FileMode // of all that is copied; nil: as in environment/
	fresh  bool         // the line makes the folder of the root that it copies into
	to     string
	run    []string          // the program of a RUN with its arguments
	env    map[string]string // of the moment
	begin  string            // the WORKDIR of the moment; "": there was none yet
}

// refusal is one line that says what of a task cannot be honoured.
func refusal(line int, text, why string) error {
	return fmt.Errorf("environment/Dockerfile line %d: %s: %s", line, wording.Clip(text, 80), why)
}

// instruction is a line with its continuations.
type instruction struct {
	line       int
	name, rest string
	text       string
}

// continues is the end of a line that goes on in the next one, as Docker has it: a backslash, but not the second of two.
var continues = regexp.MustCompile(`(^|[^\\])\\[ \t]*$`)

// linesOf are the instructions of a Dockerfile without comments.
func linesOf(text string) (out []instruction, err error) {
	var open *strings.Builder
	begun := 0
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "#") {
			if directive := strings.ToLower(strings.ReplaceAll(trimmed, " ", "")); len(out) == 0 && strings.HasPrefix(directive, "#escape=") {
				return nil, refusal(i+1, trimmed, "another escape character is not supported")
			}
			continue
		}
		if trimmed == "" { // also within an instruction that is continued
			continue
		}
		if open == nil {
			open, begun = &strings.Builder{}, i+1
		}
		if continues.MatchString(line) { // what follows may be the rest of a word
			open.WriteString(continues.ReplaceAllString(line, "$1"))
			continue
		}
		open.WriteString(line)
		whole := strings.TrimSpace(open.String())
		name, rest := cutBlank(whole)
		out = append(out, instruction{begun, strings.ToUpper(name), rest, whole})
		open = nil
	}
	if open != nil {
		return nil, refusal(begun, strings.TrimSpace(open.String()), "the last line is continued")
	}
	return out, nil
}

// cutBlank divides a text at its first blanks or tabs.
func cutBlank(text string) (before, after string) {
	if at := strings.IndexAny(text, " \t"); at >= 0 {
		return text[:at], strings.TrimSpace(text[at:])
	}
	return text, ""
}

var absolute = regexp.MustCompile(`(?:^|[\s"'=>])/([A-Za-z0-9_][A-Za-z0-9_.-]*)`)

// parse reads the Dockerfile of a task. Its errors are refusals: of what cannot be honoured without containers.
func parse(text, context string, images []string) (*recipe, error) {
	all, err := linesOf(text)
	if err != nil {
		return nil, err
	}
	r := &recipe{env: map[string]string{"PATH": sandbox.Path}, tops: []string{"root"}, args: map[string]string{}}
	for _, in := range all {
		expand := func(text string) (string, error) {
			w := word{text, func(name string) (string, bool) {
				if v, ok := r.env[name]; ok {
					return v, true
				}
				v, ok := r.args[name]
				return v, ok
			}}
			return w.until("")
		}
		if r.image == "" && in.name != "FROM" && in.name != "ARG" {
			return nil, refusal(in.line, in.text, "the first instruction must be FROM")
		}
		if err := r.read(in, expand, context, images); err != nil {
			return nil, err
		}
	}
	switch {
	case r.image == "":
		return nil, fmt.Errorf("environment/Dockerfile has no FROM")
	case r.begin == "":
		return nil, fmt.Errorf("environment/Dockerfile has no WORKDIR, and programs cannot write in /; give it one, such as WORKDIR /app")
	}
	for _, top := range r.tops {
		if slices.Contains(reserved, top) {
			return nil, fmt.Errorf("environment/Dockerfile writes in /%s, which is this machine's own or the verifier's; use another folder, such as /app", top)
		}
		if begin, _, _ := strings.Cut(r.begin[1:], "/"); top == "workspace" && begin != top {
			return nil, fmt.Errorf("environment/Dockerfile writes in /workspace, which is the sandbox's name of the WORKDIR; use another folder")
		}
	}
	return r, nil
}

// read honours one instruction, or refuses it.
func (r *recipe) read(in instruction, expand func(string) (string, error), context string, images []string) error {
	refuse := func(format string, a ...any) error { return refusal(in.line, in.text, fmt.Sprintf(format, a...)) }
	switch in.name {
	case "FROM":
		image, err := expand(in.rest)
		if err != nil {
			return refuse("%v", err)
		}
		words := strings.Fields(image)
		if r.image != "" {
			return refuse("a second stage needs containers")
		}
		if len(words) > 0 && strings.HasPrefix(words[0], "--platform=") {
			words = words[1:]
		}
		if len(words) == 0 {
			return refuse("it names no image")
		}
		r.image, r.global, r.args = words[0], r.args, map[string]string{}
		if !standsIn(r.image, images) {
			return refuse("this machine's programs stand in for %s only; where they are what the image %s has, say images: [%s]", strings.Join(standIns, ", "), r.image, bare(r.image))
		}
	case "WORKDIR":
		to, err := expand(in.rest)
		if err != nil {
			return refuse("%v", err)
		}
		if !path.IsAbs(to) {
			to = path.Join("/", r.begin, to)
		}
		r.begin = path.Clean(to)
		if r.begin == "/" {
			return refuse("programs cannot write in /; use a folder, such as /app")
		}
		r.top(r.begin)
		r.steps = append(r.steps, step{line: in.line, text: in.text, begin: r.begin})
	case "ENV":
		pairs, err := pairsOf(in.rest, false)
		if err != nil {
			return refuse("%v", err)
		}
		for i := range pairs {
			if pairs[i].value, err = expand(pairs[i].value); err != nil {
				return refuse("%v", err)
			}
		}
		for _, p := range pairs { // after all of the line, which sees the values that were there before it
			r.env[p.name] = p.value
		}
	case "ARG":
		pairs, err := pairsOf(in.rest, true)
		if err != nil {
			return refuse("%v", err)
		}
		for _, p := range pairs { // each sees those before it on the line
			value, set := r.global[p.name]
			if !p.alone {
				set = true
				if value, err = expand(p.value); err != nil {
					return refuse("%v", err)
				}
			}
			if set {
				r.args[p.name] = value
			}
		}
	case "COPY", "ADD":
		return r.copy(in, expand, context, refuse)
	case "RUN":
		command := in.rest
		var run []string
		switch {
		case strings.HasPrefix(command, "--"):
			return refuse("flags of RUN need containers")
		case strings.Contains(command, "<<"):
			return refuse("here-documents are not supported; put the text in a file and COPY it")
		case json.Unmarshal([]byte(command), &run) != nil:
			run = []string{"/bin/sh", "-c", command}
		case len(run) == 0:
			return refuse("give a command")
		default: // the exec form, in which no shell reads the words
			command = strings.Join(run, " ")
		}
		for _, c := range commandEnds.Split(duplication.ReplaceAllString(command, ""), -1) {
			if top := r.misled(c); top != "" {
				return refuse("/%s is there from the start here; write mkdir -p or cp -rT, or use a folder below it", top)
			}
			for _, m := range absolute.FindAllStringSubmatch(c, -1) {
				if !slices.Contains(reserved, m[1]) && m[1] != "workspace" { // where it writes in one of those it fails, and says so
					r.top("/" + m[1])
				}
			}
		}
		env := make(map[string]string, len(r.env)+len(r.args))
		for _, from := range []map[string]string{r.args, r.env} {
			for k, v := range from {
				env[k] = v
			}
		}
		r.steps = append(r.steps, step{line: in.line, text: in.text, run: run, env: env, begin: r.begin})
	case "USER":
		user, err := expand(in.rest)
		if err != nil {
			return refuse("%v", err)
		}
		if user, _, _ := strings.Cut(user, ":"); user != "root" && user != "0" {
			return refuse("the sandbox has one user")
		}
	case "CMD", "LABEL", "MAINTAINER", "EXPOSE", "STOPSIGNAL": // an episode starts no such program, and has no network
	default:
		return refuse("%s needs containers", wording.Clip(in.name, 20))
	}
	return nil
}

// copy reads a COPY, or an ADD that is no more than that.
func (r *recipe) copy(in instruction, expand func(string) (string, error), context string, refuse func(string, ...any) error) error {
	s := step{line: in.line, text: in.text, begin: r.begin}
	rest := in.rest
	for strings.HasPrefix(rest, "--") {
		var flag string
		flag, rest = cutBlank(rest)
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--chown", "--link": // there is one user, and no layers
		case "--chmod":
			value, err := expand(value)
			if err != nil {
				return refuse("%v", err)
			}
			mode, err := strconv.ParseUint(value, 8, 9)
			if err != nil || len(value) < 3 || len(value) > 4 {
				return refuse("of --chmod three or four octal digits to 0777 are supported, such as 755")
			}
			s.chmod = new(fs.FileMode(mode))
		default:
			return refuse("%s needs containers", name)
		}
	}
	var words []string
	if json.Unmarshal([]byte(rest), &words) != nil {
		if strings.Contains(rest, "<<") {
			return refuse("here-documents are not supported; put the text in a file")
		}
		words = strings.Fields(rest)
	}
	if len(words) < 2 {
		return refuse("give a source and a target")
	}
	for i := range words {
		var err error
		if words[i], err = expand(words[i]); err != nil {
			return refuse("%v", err)
		}
	}
	to := words[len(words)-1]
	folder := strings.HasSuffix(to, "/") || to == "." || len(words) > 2
	if !path.IsAbs(to) {
		if r.begin == "" {
			return refuse("the target is relative, and there is no WORKDIR before it")
		}
		to = path.Join(r.begin, to)
	}
	to = path.Clean(to)
	folder = folder || r.there(to[1:]) // the build sees whether a deeper folder exists
	for _, source := range words[:len(words)-1] {
		if strings.Contains(source, "://") || strings.HasPrefix(source, "git@") {
			return refuse("the sandbox has no network for %s", wording.Clip(source, 60))
		}
		found, err := filepath.Glob(filepath.Join(escaped(context), filepath.FromSlash(path.Clean("/"+source))))
		if err != nil || len(found) == 0 {
			return refuse("there is no %s in environment/", wording.Clip(source, 60))
		}
		for _, f := range found {
			from, err := within(context, f)
			if err != nil {
				return refuse("%v", err)
			}
			info, err := os.Stat(from)
			switch {
			case err != nil:
				return refuse("%v", err)
			case in.name == "ADD" && !info.IsDir() && archive.MatchString(f):
				return refuse("ADD would unpack %s; COPY the unpacked files", filepath.Base(f))
			case !info.IsDir() && (folder || len(found) > 1):
				s.to = path.Join(to, filepath.Base(f))
			default: // of a folder the content
				s.to = to
			}
			s.copies, s.name, s.fresh = []string{from}, filepath.Base(f), path.Dir(s.to) == "/" && !r.there(s.to[1:])
			if s.to == "/" || path.Dir(s.to) == "/" && !info.IsDir() {
				return refuse("programs cannot have files in /; use a folder, such as /app")
			}
			r.top(s.to)
			r.steps = append(r.steps, s)
		}
	}
	return nil
}

// within follows a name in a folder that may be a link, as COPY does with a source. It leads out of the folder nowhere.
func within(dir, name string) (string, error) {
	real, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is a link to nothing", filepath.Base(name))
	}
	if err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(root, real)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%s is a link that leads out of environment/", filepath.Base(name))
	}
	return filepath.Join(dir, rel), nil
}

var archive = regexp.MustCompile(`\.(tar|tgz|tbz2|txz|tar\.[a-z0-9]+)$`)

// What divides the commands of a script, and what of a command is not among its words.
var (
	commandEnds = regexp.MustCompile(`[;&|()\n]+`)
	duplication = regexp.MustCompile(`[0-9]*[<>]&[0-9-]`)
	redirection = regexp.MustCompile(`[0-9]*[<>]+\s*\S*`)
)

// misled is a folder of the root that a command would make, and that no line before it made in Docker; "": there is none. The sandbox has the folder
// from the start: mkdir fails for that, and cp, mv and ln put into it what should take its place.
func (r *recipe) misled(command string) string {
	words := strings.Fields(redirection.ReplaceAllString(command, " "))
	at := slices.IndexFunc(words, func(w string) bool { return slices.Contains([]string{"mkdir", "cp", "mv", "ln"}, path.Base(w)) })
	if at < 0 {
		return ""
	}
	targets, harmless := words[at+1:], "p"
	if name := path.Base(words[at]); name != "mkdir" {
		targets, harmless = targets[max(0, len(targets)-1):], "T"
	}
	if slices.ContainsFunc(words[at+1:], func(w string) bool { return strings.HasPrefix(w, "-") && strings.Contains(w, harmless) }) {
		return ""
	}
	for _, w := range targets {
		w = strings.Trim(w, `"'`)
		top := strings.Trim(w, "/")
		if strings.HasPrefix(w, "/") && top != "" && !strings.Contains(top, "/") && !r.there(top) && !slices.Contains(reserved, top) {
			return top
		}
	}
	return ""
}

// there tells whether a folder of the root is there in Docker too, as far as the lines so far say.
func (r *recipe) there(top string) bool {
	return slices.Contains(existing, top) || slices.Contains(r.tops, top)
}

// top notes a folder of the root.
func (r *recipe) top(name string) {
	if top, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/"); !slices.Contains(r.tops, top) {
		r.tops = append(r.tops, top)
	}
}

// bare is an image without registry, tag and digest.
func bare(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		image = image[:at]
	}
	return strings.TrimPrefix(strings.TrimPrefix(image, "docker.io/"), "library/")
}

func standsIn(image string, more []string) bool {
	return slices.Contains(standIns, bare(image)) || slices.Contains(more, bare(image)) || slices.Contains(more, image)
}

var pair = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=((?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\])*)(?:\s+|$)`)

// declared is a NAME of ARG without a value.
var declared = regexp.MustCompile(`^[^\s="']+(?:\s+|$)`)

// assignment is a NAME=value with quotes as they stand, or a NAME alone.
type assignment struct {
	name, value string
	alone       bool
}

// pairsOf reads NAME=value …, or the old form NAME value. alone allows a NAME without a value, and not the old form.
func pairsOf(rest string, alone bool) (out []assignment, err error) {
	if name, value := cutBlank(rest); !alone && value != "" && !strings.Contains(name, "=") {
		return []assignment{{name: name, value: value}}, nil
	}
	if rest == "" {
		return nil, fmt.Errorf("write NAME=value")
	}
	for rest != "" {
		if m := pair.FindStringSubmatch(rest); m != nil {
			out, rest = append(out, assignment{name: m[1], value: m[2]}), strings.TrimSpace(rest[len(m[0]):])
			continue
		}
		name := declared.FindString(rest)
		if name == "" || !alone {
			return nil, fmt.Errorf("write NAME=value")
		}
		out, rest = append(out, assignment{name: strings.TrimSpace(name), alone: true}), strings.TrimSpace(rest[len(name):])
	}
	return out, nil
}
