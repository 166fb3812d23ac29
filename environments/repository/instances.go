package repository

import (
	"bufio"
	"cmp"
	"context"
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
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/sandbox"
)

// list is a list of names, or the JSON text of one, as SWE-bench writes it.
type list []string

func (l *list) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		if text == "" {
			return nil
		}
		data = []byte(text)
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// line is an instance as its file has it, of either data set.
type line struct {
	ID         string `json:"instance_id"`
	Repo       string `json:"repo"`
	Base       string `json:"base_commit"`
	Problem    string `json:"problem_statement"`
	Patch      string `json:"patch"`
	TestPatch  string `json:"test_patch"`
	FailToPass list   `json:"FAIL_TO_PASS"`
	PassToPass list   `json:"PASS_TO_PASS"`
	Snapshot   string `json:"snapshot"` // ours: the repository, below the folder of snapshots
	// Of R2E.
	RepoName string          `json:"repo_name"`
	Commit   string          `json:"commit_hash"`
	Expected json.RawMessage `json:"expected_output_json"`
	Executed json.RawMessage `json:"execution_result_content"`
}

// instance is a task of a data set.
type instance struct {
	name, problem string
	snapshot      string // folder, archive or bundle of the host
	base          string // commit; "": the snapshot as it is
	patch         string // that mends it, where it is known
	testPatch     string
	files         map[string]string // of tests, of R2E, in the folder r2eTests
	must          []string          // tests that must pass
	before        []string          // those of them that pass before, too
	expected      map[string]string // of R2E: the status of every test; nil: must counts
}

const (
	r2eTests = "r2e_tests"
	longLine = 64 << 20
)

// readInstances reads a file of JSON lines. Its errors name the line.
func readInstances(file, dir string) (map[string]*instance, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("instances: %w", err)
	}
	defer f.Close()
	all := map[string]*instance{}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, longLine)
	for n := 1; scan.Scan(); n++ {
		if len(strings.TrimSpace(scan.Text())) == 0 {
			continue
		}
		i, err := readInstance(scan.Bytes(), dir)
		if err == nil && all[i.name] != nil {
			err = fmt.Errorf("the instance %q is there twice", wording.Clip(i.name, 80))
		}
		if err != nil {
			return nil, fmt.Errorf("instances: %s line %d: %w", filepath.Base(file), n, err)
		}
		all[i.name] = i
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("instances: %s: %w", filepath.Base(file), err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("instances: %s has none", filepath.Base(file))
	}
	return all, nil
}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

func readInstance(text []byte, dir string) (*instance, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("it is no instance: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	i := &instance{name: l.ID, problem: strings.TrimSpace(l.Problem), base: l.Base, patch: l.Patch, testPatch: l.TestPatch}
	r2e := len(l.Expected) > 0 && string(l.Expected) != "null"
	if r2e && i.name == "" {
		i.name = l.RepoName + "-" + l.Commit
	}
	switch {
	case i.name == "" || i.name == "-":
		return nil, errors.New("it has no instance_id")
	case i.problem == "":
		return nil, fmt.Errorf("%s has no problem_statement", i.name)
	case i.base != "" && !commitPattern.MatchString(i.base):
		return nil, fmt.Errorf("%s: base_commit %q is no commit", i.name, wording.Clip(i.base, 40))
	}
	if r2e {
		if err := i.readR2E(l); err != nil {
			return nil, fmt.Errorf("%s: %w", i.name, err)
		}
	} else {
		i.must = append(slices.Clone([]string(l.FailToPass)), l.PassToPass...)
		i.before = l.PassToPass
		if len(l.FailToPass) == 0 || l.TestPatch == "" {
			return nil, fmt.Errorf("%s has no FAIL_TO_PASS or no test_patch", i.name)
		}
		if _, err := touched(l.TestPatch); err != nil {
			return nil, fmt.Errorf("%s: test_patch: %w", i.name, err)
		}
	}
	var err error
	i.snapshot, err = findSnapshot(dir, l, i.name)
	return i, err
}

// readR2E reads the tests of an instance of R2E and what each of them must say.
func (i *instance) readR2E(l line) error {
	unpack := func(raw json.RawMessage, into any) error { // an object, or the text of one
		var text string
		if json.Unmarshal(raw, &text) == nil {
			raw = json.RawMessage(text)
		}
		return json.Unmarshal(raw, into)
	}
	expected := map[string]string{}
	if err := unpack(l.Expected, &expected); err != nil || len(expected) == 0 {
		return fmt.Errorf("expected_output_json cannot be read, or is empty: %w", err)
	}
	i.expected = map[string]string{}
	for name, status := range expected {
		i.expected[plain(name)] = status
	}
	var executed struct {
		Codes []string `json:"test_file_codes"`
		Names []string `json:"test_file_names"`
	}
	if err := unpack(l.Executed, &executed); err != nil {
		return fmt.Errorf("execution_result_content cannot be read: %w", err)
	}
	if len(executed.Names) == 0 || len(executed.Names) != len(executed.Codes) {
		return fmt.Errorf("execution_result_content has %d test_file_names and %d test_file_codes", len(executed.Names), len(executed.Codes))
	}
	i.files = map[string]string{}
	for n, name := range executed.Names {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("execution_result_content names the file %q", wording.Clip(name, 80))
		}
		i.files[path.Join(r2eTests, name)] = executed.Codes[n]
	}
	if i.base == "" && commitPattern.MatchString(l.Commit) {
		i.base = l.Commit + "^" // the commit that mends it
	}
	return nil
}

var colour = regexp.MustCompile(`(\\u001b|\x1b)\[[0-9;]*m`)

// plain is the name of a test as R2E compares them: without colours and what follows " - ".
func plain(name string) string {
	name, _, _ = strings.Cut(colour.ReplaceAllString(name, ""), " - ")
	return name
}

// findSnapshot finds the repository of an instance: the path that it names, or a folder or archive of the name of the instance, of its repository at
// the base commit, or of its repository.
func findSnapshot(dir string, l line, name string) (string, error) {
	repo := l.Repo
	if repo == "" {
		repo = l.RepoName
	}
	repo = strings.ReplaceAll(repo, "/", "__")
	names := []string{l.Snapshot}
	if l.Snapshot == "" {
		names = []string{name, repo + "-" + l.Base, repo}
	}
	for _, n := range names {
		if n == "" || !filepath.IsLocal(n) {
			continue
		}
		for _, suffix := range []string{"", ".git", ".bundle", ".tar", ".tar.gz", ".tgz"} {
			found := filepath.Join(dir, n+suffix)
			if _, err := os.Stat(found); err == nil {
				return filepath.Abs(found)
			}
		}
	}
	return "", fmt.Errorf("%s: no snapshot of its repository lies in %s: there is no %s, as a folder, .git, .bundle, .tar, .tar.gz or .tgz", name, dir, strings.Join(slices.DeleteFunc(names, func(n string) bool { return n == "" }), ", "))
}

func (i *instance) work() *work {
	w := &work{name: i.name, problem: i.problem, fill: i.fill, judge: i.judge}
	if i.patch != "" {
		w.solve = []string{"git apply - <<'MENDED'\n" + strings.TrimSuffix(i.patch, "\n") + "\nMENDED\n"}
	}
	return w
}

// unpack makes the repository of a snapshot, $1, at a commit, $2, in the working folder, as one commit: what came after it, which holds the answer, is
// not there.
const unpack = `set -e
export HOME=$(mktemp -d) GIT_TERMINAL_PROMPT=0
printf '[safe]\n\tdirectory = *\n' >"$HOME/.gitconfig"
clone() { git clone -q --no-hardlinks --no-checkout -- "$1" .clone; mv .clone/.git .; rm -rf .clone; }
case $1 in
  *.tar|*.tar.gz|*.tgz)
    mkdir .unpack; tar -xf "$1" -C .unpack --no-same-owner
    from=.unpack; only=$(find .unpack -mindepth 1 -maxdepth 1 -printf "%f/")
    case $only in .git/|*/*/) ;; *) if [ -d ".unpack/$only" ]; then from=.unpack/$only; fi ;; esac
    find "$from" -mindepth 1 -maxdepth 1 -exec mv -t . {} +
    rm -rf .unpack ;;
  *.bundle|*.git) clone "$1" ;;
  *) if [ -e "$1/.git" ]; then clone "$1"; else cp -R "$1/." .; fi ;;
esac
if [ -e .git ]; then
  [ -n "$2" ] || set -- "$1" HEAD
  git -c advice.detachedHead=false checkout -q -f "$2" --
  rm -rf .git
fi
rm -rf "$HOME"
if command -v git >/dev/null; then
  git init -q . && git add -A -f . && git -c user.name=base -c user.email=base@localhost commit -q --allow-empty -m base
fi
`

// program is a shell script of this package in a folder, which may read a path of the host.
func program(f *boxed.Folder, limit time.Duration, readable, text string, args ...string) sandbox.Program {
	p := f.Base
	p.Args = append([]string{"bash", "-c", text, "bash"}, args...)
	if readable != "" {
		p.ReadOnly = append(slices.Clone(p.ReadOnly), readable)
	}
	p.Limits.Wall, p.Limits.CPU = limit, boxed.Processor(limit)
	return p
}

// fill makes the repository. That it cannot is the fault of the instance or its snapshot.
func (i *instance) fill(ctx context.Context, s *source, f *boxed.Folder) error {
	limit := boxed.Within(ctx, 10*time.Minute)
	r, err := f.Run(ctx, program(f, limit, i.snapshot, unpack, i.snapshot, i.base))
	if err != nil {
		return err
	}
	if r.TimedOut {
		return fmt.Errorf("%s: its snapshot is not unpacked after %s; give environment.reset_timeout more", i.name, limit.Round(time.Second))
	}
	if why := boxed.Failed(r, limit); why != "" {
		if f.Full(r) {
			return fmt.Errorf("%s: its snapshot does not fit on the disk of this machine: %s", i.name, oneLine(string(r.Stderr)))
		}
		return environments.WrongTask("its snapshot %s does not become a repository at %s (%s): %s", filepath.Base(i.snapshot), i.base, why, oneLine(string(r.Stderr)))
	}
	return nil
}

var heading = regexp.MustCompile(`^(---|\+\+\+|diff --git|(?:rename|copy) (?:from|to)) (.*)`)

// named is the file that a line of a patch names; "": it names none. A line diff --git counts where both of its names are one: an empty or a binary
// file, or a change of rights alone, has no other line. Where they are two, lines rename or copy name them.
func named(line string) string {
	m := heading.FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	kind, name := m[1], m[2]
	switch kind {
	case "---", "+++":
		name, _, _ = strings.Cut(name, "\t")
	case "diff --git":
		half := len(name) / 2
		if len(name)%2 == 0 || name[half+1:] != strings.Replace(name[:half], "a/", "b/", 1) {
			return ""
		}
		name = name[half+1:]
	}
	if strings.HasPrefix(name, `"`) {
		name, _ = strconv.Unquote(name) // git quotes as Go does
	}
	if strings.HasPrefix(kind, "rename") || strings.HasPrefix(kind, "copy") {
		return name
	}
	if !strings.HasPrefix(name, "a/") && !strings.HasPrefix(name, "b/") {
		return "" // /dev/null
	}
	return name[len("a/"):]
}

// touched are the files that a patch changes, makes or removes. What it copies is none of them, unless it changes that too, in a diff of its own.
func touched(patch string) (out []string, err error) {
	copied := ""
	for line := range strings.Lines(patch) {
		name := named(strings.TrimSuffix(line, "\n"))
		if strings.HasPrefix(line, "copy from ") {
			copied = name
			continue
		}
		if name == "" || name == copied && strings.HasPrefix(line, "--- ") || slices.Contains(out, name) {
			continue
		}
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("it changes %q, out of the repository", wording.Clip(name, 80))
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, errors.New("it changes no file")
	}
	return out, nil
}

// startsWith are files that Python and pytest begin with: those of the snapshot count, so that none of an agent's stands between the tests and their
// report.
var startsWith = []string{"conftest.py", "pytest.ini", "sitecustomize.py", "usercustomize.py"}

// hidden puts the tests in a folder that an agent left. They come from clean, a folder at the base with the test patch, which no agent saw. files are
// what is run.
func (i *instance) hidden(clean, f *boxed.Folder) (files []string, err error) {
	if err := sandbox.Reopen(f.Dir()); err != nil { // where this process is not root's, an agent may have closed folders to it
		return nil, err
	}
	for _, from := range []*boxed.Folder{f, clean} { // what stands in one of them
		if err := fs.WalkDir(from.Root().FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipDir // a folder whose name is not UTF-8, which io/fs does not open; instances name no test in one
			}
			if d.Name() == ".git" && d.IsDir() {
				return fs.SkipDir
			}
			if slices.Contains(startsWith, d.Name()) {
				return place(clean, f, name)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if i.files != nil {
		if err := f.Root().RemoveAll(r2eTests); err != nil {
			return nil, err
		}
		for name, text := range i.files {
			if err := boxed.Write(f.Root(), name, []byte(text), 0o644); err != nil {
				return nil, err
			}
		}
		return []string{r2eTests}, f.Own()
	}
	names, err := touched(i.testPatch)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := place(clean, f, name); err != nil {
			return nil, err
		}
	}
	for _, id := range i.must {
		file, _, named := strings.Cut(id, "::")
		if named && !slices.Contains(files, file) && filepath.IsLocal(file) {
			files = append(files, file)
		}
	}
	if len(files) == 0 { // names of unittest, without their files
		for _, name := range names {
			if strings.HasSuffix(name, ".py") {
				files = append(files, name)
			}
		}
	}
	return files, f.Own()
}

// place makes a file of a folder what it is in clean: there, with its right to run, or not.
func place(clean, f *boxed.Folder, name string) error {
	data, err := boxed.Read(clean.Root(), name, longLine)
	if errors.Is(err, fs.ErrNotExist) {
		return boxed.Remove(f.Root(), name)
	}
	if err != nil {
		return err
	}
	info, err := clean.Root().Stat(name)
	if err != nil {
		return err
	}
	return boxed.Write(f.Root(), name, data, 0o644|info.Mode().Perm()&0o111)
}

// clean is the repository at its base with its tests; with mended, with the patch that mends it too.
func (i *instance) clean(ctx context.Context, s *source, mended bool) (*boxed.Folder, error) {
	f, err := s.folder()
	if err != nil {
		return nil, err
	}
	if err := i.apply(ctx, s, f, mended); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (i *instance) apply(ctx context.Context, s *source, f *boxed.Folder, mended bool) error {
	if err := i.fill(ctx, s, f); err != nil {
		return err
	}
	patches := []string{i.testPatch}
	if mended {
		patches = append(patches, i.patch)
	}
	for _, patch := range patches {
		if patch == "" {
			continue
		}
		limit := boxed.Within(ctx, time.Minute)
		p := program(f, limit, "", "export HOME=/nowhere; if command -v git >/dev/null; then git apply --whitespace=nowarn -; else patch -s -p1; fi")
		p.Stdin = []byte(strings.TrimSuffix(patch, "\n") + "\n")
		r, err := f.Run(ctx, p)
		if err != nil {
			return err
		}
		if r.Exit != 0 {
			return fmt.Errorf("a patch of the instance cannot be applied to its snapshot at %s: %s", i.base, oneLine(string(r.Stderr)))
		}
	}
	for name, text := range i.files {
		if err := boxed.Write(f.Root(), name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return f.Own()
}

// judge runs the hidden tests on what the agent left. Where they do not pass, it is asked once whether they can pass on this machine: an instance whose
// tests do not run here, or fail on the mended repository, is an error and never a reward.
func (i *instance) judge(ctx context.Context, s *source, f *boxed.Folder) (*verdict, error) {
	clean, err := i.clean(ctx, s, false)
	if err != nil {
		return nil, err
	}
	defer clean.Close()
	v, err := i.verify(ctx, s, clean, f, i.must)
	if err != nil || v.reward == 1 {
		return v, err
	}
	c := s.control(i.name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.checked {
		return v, nil
	}
	must, mended := i.before, i.patch != ""
	if mended {
		must = i.must
	}
	reference, err := i.clean(ctx, s, mended)
	if err != nil {
		return nil, err
	}
	defer reference.Close()
	known, err := i.verify(ctx, s, clean, reference, must)
	switch {
	case err != nil:
		return nil, err
	case known.reward < 1 && (mended || i.expected == nil), known.ran == 0:
		return nil, fmt.Errorf("the instance does not work on this machine: without an agent, %s; install what it needs (parameters python and show), or leave it out; its tests wrote: %s", strings.Join(known.failed, ", "), oneLine(known.said))
	}
	c.checked = true
	return v, nil
}

// verify puts the hidden tests in place, runs them, and compares.
func (i *instance) verify(ctx context.Context, s *source, clean, f *boxed.Folder, must []string) (*verdict, error) {
	files, err := i.hidden(clean, f)
	if err != nil {
		return nil, err
	}
	all, r, err := s.statuses(ctx, f, files)
	if err != nil {
		return nil, err
	}
	v := &verdict{reward: 1, said: r.said}
	fail := func(format string, args ...any) {
		if v.reward = 0; len(v.failed) < mostFailed {
			v.failed = append(v.failed, wording.Clip(fmt.Sprintf(format, args...), 200))
		}
	}
	switch {
	case r.stopped != "":
		fail("stopped: %s", r.stopped)
	case all == nil:
		fail("the tests gave no report (%s)", cmp.Or(r.failed, "exit status 0"))
	case i.expected != nil:
		v.ran = i.compare(all, fail)
	default:
		v.ran = len(all)
		words := byFirstWord(all)
		for _, name := range must {
			s := cmp.Or(all[name], words[name])
			if s != "PASSED" && s != "XFAIL" && (s != "SKIPPED" || !slices.Contains(i.before, name)) { // SWE-bench's rule
				fail("%s is %s", name, status(s))
			}
		}
	}
	return v, nil
}

// byFirstWord are the statuses of tests of pytest whose names hold a blank, by what stands before it: SWE-bench's lists have no more of a name. Where
// that is several tests, the worst counts.
func byFirstWord(all map[string]string) map[string]string {
	worse := []string{"PASSED", "XFAIL", "SKIPPED", "FAILED", "ERROR"}
	out := map[string]string{}
	for id, s := range all {
		if word, _, cut := strings.Cut(id, " "); cut && strings.Contains(word, "::") && slices.Index(worse, s) >= slices.Index(worse, out[word]) {
			out[word] = s
		}
	}
	return out
}

func status(s string) string {
	if s == "" {
		return "not there"
	}
	return s
}

// compare holds all tests of R2E to what each must say. ran is how many of them there are.
func (i *instance) compare(all map[string]string, fail func(string, ...any)) (ran int) {
	got := map[string]string{}
	for id, s := range all {
		if _, name, named := strings.Cut(id, "::"); named && s != "SKIPPED" && s != "XFAIL" {
			got[plain(strings.ReplaceAll(name, "::", "."))] = s
		}
	}
	for name, want := range i.expected {
		if got[name] != "" {
			ran++
		}
		if got[name] != want && want != "SKIPPED" {
			fail("%s is %s and must be %s", name, status(got[name]), want)
		}
	}
	for name, s := range got {
		if _, known := i.expected[name]; !known {
			fail("%s is %s and must not be there", name, s)
		}
	}
	return ran
}
