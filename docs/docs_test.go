// Package docs_test holds the pages of this folder against the code: links, commands, names, the length of lines.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// page is a Markdown file, with its path from the repository's root.
type page struct {
	path  string
	lines []line
}

// line is one line of a page.
type line struct {
	number    int
	text      string
	code      bool // within a fenced block
	generated bool // between two comments <!-- name --> and <!-- /name -->, written by a script
}

var marker = regexp.MustCompile(`^<!-- (/?)[\w-]+ -->$`)

func parsePage(name, text string) page {
	p := page{path: name}
	code, generated := false, false
	for i, s := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(s), "```")
		if m := marker.FindStringSubmatch(s); m != nil && !code {
			generated = m[1] == ""
		}
		p.lines = append(p.lines, line{i + 1, s, code || fence, generated})
		if fence {
			code = !code
		}
	}
	return p
}

// pages are all Markdown files that the tests hold: the book, README and CONTRIBUTING.
func pages(t *testing.T) []page {
	var out []page
	names := []string{"README.md", "CONTRIBUTING.md"}
	require.NoError(t, filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".md") {
			names = append(names, path.Join("docs", filepath.ToSlash(p)))
		}
		return err
	}))
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		out = append(out, parsePage(name, string(text)))
	}
	require.Greater(t, len(out), 20)
	return out
}

var heading = regexp.MustCompile("^#{1,6} (.*)$")

// anchors are the names that links within a page may have after the #, as GitHub makes them of headings.
func (p page) anchors() map[string]bool {
	out := map[string]bool{}
	for _, l := range p.lines {
		m := heading.FindStringSubmatch(l.text)
		if m == nil || l.code {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, m[1])
		for name, i := slug, 1; ; i++ {
			if !out[name] {
				out[name] = true
				break
			}
			name = fmt.Sprintf("%s-%d", slug, i)
		}
	}
	return out
}

var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// brokenLinks lists the relative links of the pages whose file or heading does not exist.
func brokenLinks(all []page) (out []string) {
	known := map[string]page{}
	for _, p := range all {
		known[p.path] = p
	}
	for _, p := range all {
		for _, l := range p.lines {
			if l.code {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(l.text, -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				file, anchor, _ := strings.Cut(m[1], "#")
				to := p.path
				if file != "" {
					to = path.Join(path.Dir(p.path), file)
				}
				at := fmt.Sprintf("%s:%d: %s", p.path, l.number, m[1])
				if _, ok := known[to]; !ok {
					if _, err := os.Stat(filepath.Join("..", to)); err != nil {
						out = append(out, at+": there is no "+to)
						continue
					}
				}
				if anchor != "" && !known[to].anchors()[anchor] {
					out = append(out, at+": "+to+" has no heading for it")
				}
			}
		}
	}
	return out
}

func TestLinksExist(t *testing.T) {
	require.Empty(t, brokenLinks(pages(t)))
}

func TestLinksCanBreak(t *testing.T) {
	all := []page{
		parsePage("docs/a.md", "# A page\n[b](b.md#the-second-one) [c](c.md) [d](b.md#no) [up](../docs_none/x.go) [self](#a-page) [web](https://x.y)\n```\n[code](none.md)\n```"),
		parsePage("docs/b.md", "## The `second` one"),
	}
	require.Equal(t, []string{
		"docs/a.md:2: c.md: there is no docs/c.md", "docs/a.md:2: b.md#no: docs/b.md has no heading for it", "docs/a.md:2: ../docs_none/x.go: there is no docs_none/x.go",
	}, brokenLinks(all))
}

// The book leads to every page.
func TestTheBookHasEveryPage(t *testing.T) {
	contents, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, p := range pages(t) {
		if name, ok := strings.CutPrefix(p.path, "docs/"); ok && name != "README.md" {
			require.Contains(t, string(contents), "]("+name+")", "docs/README.md does not lead to "+p.path)
		}
	}
}

var mention = regexp.MustCompile(`docs/[a-z0-9_./-]+\.md`)

// Code, scripts and examples that name a page name one that exists.
func TestMentionedPagesExist(t *testing.T) {
	seen := 0
	eachFile(t, func(name string) {
		switch filepath.Ext(name) {
		case ".go", ".py", ".sh", ".yaml", ".yml", ".cc", ".h", ".c", "":
		default:
			return
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		for _, m := range mention.FindAllString(string(text), -1) {
			_, err := os.Stat(filepath.Join("..", m))
			require.NoError(t, err, "%s names %s", name, m)
			seen++
		}
	})
	require.Greater(t, seen, 10)
}

// eachFile calls f with the files of the repository that are sources, by their paths from its root.
func eachFile(t *testing.T, f func(name string)) {
	require.NoError(t, filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(p, ".."+string(filepath.Separator)))
		if d.IsDir() {
			if name != ".." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || slices.Contains([]string{"docs", "runs", "bin", "dist", "build", "testdata"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			f(name)
		}
		return nil
	}))
}

// width is the longest line of prose, in characters.
const width = 104

var codeSpan = regexp.MustCompile("`[^`]*`")

// Prose wraps, so that a diff shows what changed. Tables, code, and what scripts write do not.
func TestPagesWrap(t *testing.T) {
	var long []string
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/results/") {
			continue // measured logs, most of them written by scripts
		}
		for _, l := range p.lines {
			free := l.code || l.generated || strings.HasPrefix(l.text, "|") || strings.HasPrefix(l.text, "    ") || strings.HasPrefix(l.text, "#")
			if n := utf8.RuneCountInString(l.text); !free && n > width && strings.Contains(strings.Trim(codeSpan.ReplaceAllString(l.text, ""), " -;.,"), " ") {
				long = append(long, fmt.Sprintf("%s:%d: %d characters", p.path, l.number, n))
			}
		}
	}
	require.Empty(t, long)
}

var goTest = regexp.MustCompile(`(?:go|torchgo) test ([^` + "`;#)]*)")

// Every go test that a page shows names packages that exist and tests that they have.
func TestCommandsNameTests(t *testing.T) {
	seen := 0
	var wrong []string
	for _, p := range pages(t) {
		text := ""
		for _, l := range p.lines {
			text += strings.ReplaceAll(l.text, `\|`, "|") + " "
		}
		for _, m := range goTest.FindAllStringSubmatch(text, -1) {
			seen++
			if err := checkCommand(t, m[1]); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: go test %s: %v", p.path, strings.TrimSpace(m[1]), err))
			}
		}
	}
	require.Empty(t, wrong, strings.Join(wrong, "\n"))
	require.Greater(t, seen, 50)
}

func TestCommandsCanBeWrong(t *testing.T) {
	require.NoError(t, checkCommand(t, "-run 'Links|Pages' -v ./docs"))
	require.ErrorContains(t, checkCommand(t, "./docs/none"), "./docs/none")
	require.ErrorContains(t, checkCommand(t, "-run 'Links|Lynx' ./docs"), "Lynx")
	require.ErrorContains(t, checkCommand(t, "-run xxx -bench Lynx ./docs"), "Lynx")
}

var quoted = regexp.MustCompile(`'[^']*'|\S+`)

// checkCommand holds the arguments of one go test against the packages that they name.
func checkCommand(t *testing.T, args string) error {
	var packages []string
	patterns := map[string]string{}
	words := quoted.FindAllString(args, -1)
	for i := 0; i < len(words); i++ {
		word := strings.Trim(words[i], "'")
		switch {
		case (word == "-run" || word == "-bench") && i+1 < len(words):
			i++
			patterns[word] = strings.Trim(words[i], "'")
		case word == "." || strings.HasPrefix(word, "./"):
			packages = append(packages, word)
		}
	}
	if len(packages) == 0 {
		return nil // of another folder, or part of a sentence
	}
	var tests []string
	for _, name := range packages {
		found, files, err := testsOf(filepath.Join("..", strings.TrimSuffix(strings.TrimRight(name, ",."), "/..")), strings.HasSuffix(name, "..."))
		if name == "." {
			found, files, err = testsOf("..", false)
		}
		if err != nil || files == 0 {
			return fmt.Errorf("there is no Go package %s", name)
		}
		tests = append(tests, found...)
	}
	for option, pattern := range patterns {
		if pattern == "xxx" || pattern == "." {
			continue
		}
		for _, one := range strings.Split(pattern, "|") {
			name, err := regexp.Compile(one)
			if err != nil {
				return err
			}
			kinds := []string{"Test", "Fuzz", "Example"}
			if option == "-bench" {
				kinds = []string{"Benchmark"}
			}
			first, _, _ := strings.Cut(one, "/") // what follows names a subtest
			if name, err = regexp.Compile(first); err != nil {
				return err
			}
			if !slices.ContainsFunc(tests, func(test string) bool {
				return name.MatchString(test) && slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(test, k) })
			}) {
				return fmt.Errorf("no test of %s has a name with %s%s", strings.Join(packages, ", "), one, testElsewhere(t, name))
			}
		}
	}
	return nil
}

// testElsewhere says which packages have a test of that name.
func testElsewhere(t *testing.T, name *regexp.Regexp) string {
	found := map[string]bool{}
	eachFile(t, func(file string) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			if name.MatchString(m[1]) {
				found["./"+path.Dir(file)] = true
			}
		}
	})
	if len(found) == 0 {
		return "; no package does"
	}
	return "; it is in " + strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

var testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)

// packageTests are the tests of a folder, and how many Go files it has.
type packageTests struct {
	names []string
	files int
}

var knownTests = map[string]packageTests{} // by folder; the sources do not change meanwhile

// testsOf lists the tests of a folder, and of those below it, and how many Go files there are.
func testsOf(dir string, below bool) (tests []string, files int, err error) {
	key := fmt.Sprint(dir, below)
	if known, ok := knownTests[key]; ok {
		return known.names, known.files, nil
	}
	defer func() {
		if err == nil {
			knownTests[key] = packageTests{tests, files}
		}
	}()
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != dir && (!below || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		files++
		if strings.HasSuffix(p, "_test.go") {
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
				tests = append(tests, m[1])
			}
		}
		return nil
	})
	return tests, files, err
}

// entry is the begin of an entry of a walk: `path/file.go: Name`.
var entry = regexp.MustCompile("^\\d+\\. `([^`:]+): ([^`]+)`")

// Walks and tables of docs/architecture.md name places in the source that exist.
func TestWalksNameTheSource(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	walks, entries, inWalk := 0, 0, false
	var wrong []string
	for _, l := range parsePage("architecture.md", string(text)).lines {
		if m := heading.FindStringSubmatch(l.text); m != nil && !l.code {
			if inWalk = strings.HasPrefix(m[1], "Walk: "); inWalk {
				walks++
			}
		}
		if !inWalk || !regexp.MustCompile(`^\d+\.`).MatchString(l.text) {
			continue
		}
		m := entry.FindStringSubmatch(l.text)
		if m == nil {
			wrong = append(wrong, fmt.Sprintf("docs/architecture.md:%d: an entry of a walk begins with `path/file.go: Name`", l.number))
			continue
		}
		entries++
		for _, name := range strings.Split(m[2], ", ") {
			if !declares(t, m[1], name) {
				wrong = append(wrong, fmt.Sprintf("docs/architecture.md:%d: %s does not declare %s%s", l.number, m[1], name, elsewhere(t, name)))
			}
		}
	}
	require.Empty(t, wrong, strings.Join(wrong, "\n"))
	require.Equal(t, 3, walks)
	require.Greater(t, entries, 20)
}

func TestWalksCanBeWrong(t *testing.T) {
	require.True(t, declares(t, "trajectory/sample.go", "Sample"))
	require.True(t, declares(t, "trajectory/sample.go", "Sample.SamplingLogprobs"))
	require.True(t, declares(t, "trajectory/sample.go", "Sample.AppendResponse"))
	require.False(t, declares(t, "trajectory/sample.go", "AppendResponse"), "a method is named with its type")
	require.False(t, declares(t, "trajectory/sample.go", "Sample.None"))
	require.False(t, declares(t, "trajectory/none.go", "Sample"))
	require.Contains(t, elsewhere(t, "Sample.AppendResponse"), "it is in trajectory/sample.go")
	require.Contains(t, elsewhere(t, "Sampled.AppendResponse"), "trajectory/sample.go: Sample.AppendResponse")
	require.Equal(t, "; no file does", elsewhere(t, "NobodyIsCalledSo"))
}

// declares tells whether a Go file declares a name: of a function, type, constant or variable, or TYPE.NAME of a method or field.
func declares(t *testing.T, file, name string) bool {
	return slices.Contains(names(t, file), name)
}

// elsewhere says which files declare a name, or else what is called so of another type or with another first letter.
func elsewhere(t *testing.T, name string) string {
	var found, similar []string
	last := strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	eachFile(t, func(file string) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return
		}
		for _, other := range names(t, file) {
			switch {
			case other == name:
				found = append(found, file)
			case strings.ToLower(other[strings.LastIndexByte(other, '.')+1:]) == last:
				similar = append(similar, file+": "+other)
			}
		}
	})
	switch {
	case len(found) > 0:
		return "; it is in " + strings.Join(found, ", ")
	case len(similar) > 0:
		return "; no file does; similar are " + strings.Join(similar[:min(8, len(similar))], ", ")
	}
	return "; no file does"
}

// names are all that a Go file declares at its top level, with methods and fields.
func names(t *testing.T, file string) (out []string) {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", filepath.FromSlash(file)), nil, parser.SkipObjectResolution)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			out = append(out, name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					out = append(out, s.Name.Name)
					out = append(out, members(s)...)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						out = append(out, n.Name)
					}
				}
			}
		}
	}
	return out
}

// members are the fields of a struct or the methods of an interface, as TYPE.NAME.
func members(s *ast.TypeSpec) (out []string) {
	var list *ast.FieldList
	switch x := s.Type.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			out = append(out, s.Name.Name+"."+n.Name)
		}
	}
	return out
}

func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// Every package has a row of "Who owns what", a row names packages that exist, and a package imports only what stands below it. What
// only tests import, and what belongs to scripts, has none.
func TestPackagesStandAboveWhatTheyImport(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	require.Empty(t, checkOwners(string(text), packageImports(t)))
}

func TestPackagesCanStandWrong(t *testing.T) {
	table := "## Who owns what\n| `b` | x | |\n| `a`, `c/d` | x | |\n"
	require.Empty(t, checkOwners(table, map[string][]string{"b": {"a", "c/d"}, "a": {"c/d"}, "c/d": nil}))
	require.Equal(t, []string{"a imports b, which stands above it"}, checkOwners(table, map[string][]string{"b": nil, "a": {"b"}, "c/d": nil}))
	require.Equal(t, []string{"e has no row", "there is no package c/d"}, checkOwners(table, map[string][]string{"b": nil, "a": nil, "e": nil}))
}

// checkOwners holds the rows of "Who owns what" against what each package imports.
func checkOwners(page string, imports map[string][]string) (wrong []string) {
	_, table, _ := strings.Cut(page, "## Who owns what\n")
	table, _, _ = strings.Cut(table, "\n## ")
	row, rows := map[string]int{}, 0
	for _, l := range strings.Split(table, "\n") {
		if !strings.HasPrefix(l, "| `") {
			continue
		}
		rows++
		for _, m := range codeSpan.FindAllString(strings.SplitN(l, "|", 3)[1], -1) {
			row[strings.Trim(m, "`")] = rows
		}
	}
	place := func(name string) int { // helpers share a row
		if row[name] == 0 && strings.HasPrefix(name, "internal/") {
			return row["internal"]
		}
		return row[name]
	}
	for name := range row {
		if _, ok := imports[name]; !ok && name != "internal" {
			wrong = append(wrong, "there is no package "+name)
		}
	}
	for name, all := range imports {
		at := place(name)
		if at == 0 {
			wrong = append(wrong, name+" has no row")
		}
		for _, other := range all {
			if under := place(other); at > 0 && under > 0 && under < at {
				wrong = append(wrong, name+" imports "+other+", which stands above it")
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// packageImports are the packages that a program is made of, by their folders, each with those of this repository that it imports. The
// package of the root is "agentfly".
func packageImports(t *testing.T) map[string][]string {
	const module = "github.com/agentfly/agentfly"
	all := map[string][]string{}
	eachFile(t, func(file string) {
		dir := path.Dir(file)
		first, _, _ := strings.Cut(dir, "/")
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || slices.Contains([]string{"cmd", "examples", "scripts"}, first) {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.ImportsOnly)
		require.NoError(t, err)
		if slices.Contains([]string{"enginetest", "environmenttest", "scripted", "vllmtest", "rollouttest", "policytest", "overviewtest", "terminaltest", "jinjatest", "viewtest"}, f.Name.Name) {
			return
		}
		if dir == "." {
			dir = "agentfly"
		}
		all[dir] = append([]string{}, all[dir]...)
		for _, s := range f.Imports {
			if p, ok := strings.CutPrefix(strings.Trim(s.Path.Value, `"`), module+"/"); ok && !slices.Contains(all[dir], p) {
				all[dir] = append(all[dir], p)
			}
		}
	})
	return all
}

// A row of docs/status.md is short, says one of three states, and what works names its proof.
func TestStatusRows(t *testing.T) {
	text, err := os.ReadFile("status.md")
	require.NoError(t, err)
	rows := 0
	for _, l := range parsePage("status.md", string(text)).lines {
		if !strings.HasPrefix(l.text, "| ") || strings.HasPrefix(l.text, "| feature |") {
			continue
		}
		rows++
		require.NoError(t, checkStatus(l.text))
	}
	require.Greater(t, rows, 100)
}

func TestStatusRowsCanBeWrong(t *testing.T) {
	require.NoError(t, checkStatus("| a | works on CPUs | `make test` |"))
	require.NoError(t, checkStatus("| a | not run | |"))
	require.ErrorContains(t, checkStatus("| a | works | |"), "no command")
	require.ErrorContains(t, checkStatus("| a | perhaps | `make test` |"), "perhaps")
	require.ErrorContains(t, checkStatus("| "+strings.Repeat("a", 200)+" | works | `make test` |"), "characters")
}

// checkStatus says what is wrong with a row: feature, state, proof.
func checkStatus(row string) error {
	cells := strings.Split(strings.Trim(strings.ReplaceAll(row, `\|`, "/"), "|"), "|")
	if n := utf8.RuneCountInString(row); n >= 200 {
		return fmt.Errorf("docs/status.md: a row of %d characters; move what proves it to its page: %s", n, row)
	}
	if len(cells) != 3 {
		return fmt.Errorf("docs/status.md: a row has three cells: %s", row)
	}
	state, proof := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
	works := strings.HasPrefix(state, "works")
	if !works && !strings.HasPrefix(state, "not run") && state != "missing" {
		return fmt.Errorf("docs/status.md: %q is none of works, not run, missing: %s", state, row)
	}
	if works && !strings.Contains(proof, "`") && !strings.Contains(proof, "](") {
		return fmt.Errorf("docs/status.md: no command shows that it works: %s", row)
	}
	return nil
}

// docs/extending.md names every option of a program, and no other.
func TestExtendingHasEveryOption(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	var options []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, name := range names(t, filepath.ToSlash(strings.TrimPrefix(file, "../"))) {
			if strings.HasPrefix(name, "With") {
				options = append(options, name)
			}
		}
	}
	text, err := os.ReadFile("extending.md")
	require.NoError(t, err)
	said := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bWith[A-Z]\w+`).FindAllString(string(text), -1) {
		if !strings.HasPrefix(name, "WithX") { // stands for all of them
			said[name] = true
		}
	}
	require.NotEmpty(t, options)
	require.ElementsMatch(t, options, slices.Collect(maps.Keys(said)), "docs/extending.md and the options of package agentfly differ")
}

// The examples of docs/extending.md are parts of files that are built and run by other tests.
func TestExtendingsExamplesAreBuilt(t *testing.T) {
	text, err := os.ReadFile("extending.md")
	require.NoError(t, err)
	blocks := strings.Count(string(text), "```go\n")
	found := regexp.MustCompile("(?s)From\\s`([^`]+)`:\n\n```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, found, blocks, "a block of Go does not say which file it is from")
	for _, m := range found {
		source, err := os.ReadFile(filepath.Join("..", m[1]))
		require.NoError(t, err)
		require.Contains(t, string(source), m[2], "an example of docs/extending.md is not that of %s", m[1])
	}
	require.GreaterOrEqual(t, blocks, 6)
}

var goName = regexp.MustCompile("`[*]?([a-z][a-z0-9]+)\\.([A-Z]\\w*)")

// What pages name as `package.Name` is declared by that package.
func TestNamedGoNamesExist(t *testing.T) {
	declared := map[string]map[string]bool{} // by package
	eachFile(t, func(file string) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.PackageClauseOnly)
		require.NoError(t, err)
		if declared[f.Name.Name] == nil {
			declared[f.Name.Name] = map[string]bool{}
		}
		for _, name := range names(t, file) {
			declared[f.Name.Name][name] = true
		}
	})
	seen := 0
	var wrong []string
	for _, p := range pages(t) {
		for _, l := range p.lines {
			for _, m := range goName.FindAllStringSubmatch(l.text, -1) {
				known, ours := declared[m[1]]
				if l.code || !ours {
					continue
				}
				if seen++; !known[m[2]] {
					wrong = append(wrong, fmt.Sprintf("%s:%d: package %s has no %s", p.path, l.number, m[1], m[2]))
				}
			}
		}
	}
	require.Empty(t, wrong)
	require.Greater(t, seen, 20)
}

var sourcePath = regexp.MustCompile("`([a-z][a-z_0-9]*(?:/[\\w.-]+)+\\.(?:go|cc|h|py|sh|yaml|awk))`")

// Source files that the pages name exist.
func TestNamedFilesExist(t *testing.T) {
	seen := 0
	for _, p := range pages(t) {
		for _, l := range p.lines {
			for _, m := range sourcePath.FindAllStringSubmatch(l.text, -1) {
				if l.code || strings.ToLower(path.Base(m[1])) != path.Base(m[1]) { // KIND stands for many
					continue
				}
				_, err := os.Stat(filepath.Join("..", m[1]))
				require.NoError(t, err, "%s:%d names %s", p.path, l.number, m[1])
				seen++
			}
		}
	}
	require.Greater(t, seen, 30)
}

// README.md stays short enough to be read: what a part of it goes into stands in the book.
func TestTheREADMEIsShort(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Less(t, strings.Count(string(text), "\n"), 150)
}

// The picture of README.md is what scripts/picture.py draws of the metrics in docs/results/curves.
func TestThePictureIsOfTheRuns(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	drawn, err := exec.Command("python3", "../scripts/picture.py").Output()
	require.NoError(t, err)
	kept, err := os.ReadFile("results/calculator.svg")
	require.NoError(t, err)
	require.Equal(t, string(kept), string(drawn), "scripts/picture.py > docs/results/calculator.svg")
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "](docs/results/calculator.svg)")
}

// The table of questions in docs/README.md leads to headings that exist, each with an answer below it: one click from the book.
func TestQuestionsHaveAnswers(t *testing.T) {
	var book page
	byPath := map[string]page{}
	for _, p := range pages(t) {
		byPath[p.path] = p
		if p.path == "docs/README.md" {
			book = p
		}
	}
	questions, inTable := 0, false
	for _, l := range book.lines {
		if m := heading.FindStringSubmatch(l.text); m != nil {
			inTable = m[1] == "Questions"
		}
		if !inTable || !strings.HasPrefix(l.text, "| ") || !strings.Contains(l.text, "?") {
			continue
		}
		questions++
		m := link.FindStringSubmatch(l.text)
		require.NotNil(t, m, l.text)
		file, anchor, _ := strings.Cut(m[1], "#")
		to, ok := byPath["docs/"+file]
		require.True(t, ok, "%s: there is no docs/%s", l.text, file)
		require.GreaterOrEqual(t, answerLines(to, anchor), 5, "%s: what docs/%s says there is short", l.text, m[1])
	}
	require.GreaterOrEqual(t, questions, 10)
}

// answerLines counts the lines of a section that say something; without an anchor those of the page.
func answerLines(p page, anchor string) (n int) {
	inside := anchor == ""
	for _, l := range p.lines {
		if m := heading.FindStringSubmatch(l.text); m != nil && !l.code && anchor != "" {
			inside = parsePage("", "# "+m[1]).anchors()[anchor]
		} else if inside && strings.TrimSpace(l.text) != "" {
			n++
		}
	}
	return n
}

func TestQuestionsCanLackAnswers(t *testing.T) {
	p := parsePage("docs/a.md", "# A page\nx\n## One\n\n## Two\nsaid\n\nsaid")
	require.Equal(t, []int{0, 2, 0, 3}, []int{answerLines(p, "one"), answerLines(p, "two"), answerLines(p, "three"), answerLines(p, "") - 3})
}
