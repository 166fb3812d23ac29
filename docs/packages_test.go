package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notOwned is the sentence in which a package says what a reader must look for elsewhere.
var notOwned = regexp.MustCompile(`\b(It|it) does not\b|\bNo \w+ is\b`)

// checkPackageDoc is "" for a package doc that says what the package owns and what it does not.
func checkPackageDoc(name, doc string) string {
	doc = strings.Join(strings.Fields(doc), " ")
	switch {
	case !strings.HasPrefix(doc, "Package "+name+" "):
		return `it does not begin with "Package ` + name + `"`
	case !notOwned.MatchString(doc):
		return `it has no sentence "It does not …" of what other packages do`
	}
	return ""
}

// Every package says what it owns, and what it does not.
func TestPackageDocsSayWhatIsNotTheirs(t *testing.T) {
	var wrong []string
	checked := 0
	err := filepath.WalkDir("..", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "testdata" || name == "examples" || name == "shared" || name == "runs" || len(name) > 2 && strings.HasPrefix(name, ".") {
			return filepath.SkipDir
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		name, doc := "", ""
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			var file *ast.File
			if file, err = parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, parser.ParseComments|parser.PackageClauseOnly); err != nil {
				return err
			}
			if name = file.Name.Name; file.Doc != nil {
				doc += file.Doc.Text()
			}
		}
		if name == "" || name == "main" {
			return nil
		}
		checked++
		if text := checkPackageDoc(name, doc); text != "" {
			wrong = append(wrong, dir+": "+text)
		}
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.Greater(t, checked, 50)
}

func TestPackageDocsCanBeWrong(t *testing.T) {
	for doc, want := range map[string]string{
		"Package shelf keeps\nbooks. It does\nnot lend them.": "",
		"Package shelf keeps books. No book is lent here.":    "",
		"Package shelf keeps books. It also lends them.":      `it has no sentence "It does not …" of what other packages do`,
		"Shelf keeps books. It does not lend them.":           `it does not begin with "Package shelf"`,
		"": `it does not begin with "Package shelf"`,
	} {
		require.Equal(t, want, checkPackageDoc("shelf", doc), doc)
	}
}
