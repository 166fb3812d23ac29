package gpython

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-python/gpython/parser"
	"github.com/go-python/gpython/py"
)

const instead = "; or use runtime: cpython"

var (
	keywords = strings.Fields("False None True and as assert break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield")
	missing  = strings.Fields("dir format hash id input issubclass super vars bytearray memoryview property breakpoint aiter anext exit quit")
	// methods of CPython's types that no type of gpython has
	noMethods = strings.Fields("encode decode expandtabs format_map isascii isidentifier isprintable istitle maketrans translate fromkeys popitem bit_length to_bytes from_bytes fromhex as_integer_ratio readline readlines writelines seek tell")
	// special methods that gpython calls, some by way of inherit and truth
	special  = strings.Fields("__init__ __len__ __getitem__ __setitem__ __delitem__ __contains__ __iter__ __next__ __str__ __repr__ __enter__ __exit__ __getattr__ __index__ __bool__")
	generics = strings.Fields("list dict tuple set frozenset type")
	modules  = strings.Fields("agentfly agentfly.core agentfly.rewards agentfly.tools binascii builtins glob math os string sys tempfile time typing")
)

// linter names what gpython does not have, before it is run.
type linter struct {
	dir    string // where the file's own modules lie
	tokens []token
	found  []string

	modules  map[string]string // those of gpython that the file imports, by the name that it gives them
	siblings []token           // of the modules of the file's folder
}

// lint returns lines "LINE:COLUMN: what, what to do"; siblings are the modules of the file's folder that it imports.
func lint(source, dir string) (found, siblings []string) {
	l := linter{dir: dir, tokens: scan(strings.ReplaceAll(source, "\r\n", "\n")), modules: map[string]string{}}
	for i, t := range l.tokens {
		if t.kind == newline {
			continue
		}
		if t.first {
			siblings = append(siblings, l.statement(i)...)
		}
		l.token(i)
	}
	if len(l.found) > 0 {
		return l.found, siblings
	}
	if line, wrong := syntaxError(source); wrong != "" {
		return []string{fmt.Sprintf("%d: %s", line, wrong)}, nil
	}
	return nil, siblings
}

func syntaxError(source string) (line int, wrong string) {
	_, err := parser.ParseString(source+"\n", py.ExecMode)
	if err == nil {
		return 0, ""
	}
	line, wrong = 1, "SyntaxError: invalid syntax"
	if e, _ := exception(err); e != nil {
		if n, ok := e.Dict["lineno"].(py.Int); ok {
			line = int(n)
		}
		wrong = lastLine(e)
	}
	return line, wrong
}

// at is a token near another one; beyond the ends it is empty.
func (l *linter) at(i int) token {
	if i < 0 || i >= len(l.tokens) {
		return token{kind: newline}
	}
	return l.tokens[i]
}

func (l *linter) add(t token, format string, a ...any) {
	l.found = append(l.found, fmt.Sprintf("%d:%d: %s", t.line, t.column, fmt.Sprintf(format, a...)+instead))
}

// statement looks at the beginning of a statement.
func (l *linter) statement(i int) (siblings []string) {
	t, after := l.at(i), l.at(i+1)
	switch {
	case t.text == "@" && t.column > 1:
		l.add(t, "a decorator inside a class or a function is not supported by gpython; call it after the definition")
	case t.text == "import" || t.text == "from":
		return l.imports(i)
	case (t.text == "match" || t.text == "type") && (after.kind == name && !slices.Contains(keywords, after.text) || after.kind == text || after.kind == number):
		l.add(t, "gpython has no statement %s; use if and elif", t.text)
	case t.kind == name && !slices.Contains(keywords, t.text):
		k := i + 1
		for l.at(k).text == "." {
			k += 2
		}
		if l.at(k).text == ":" {
			l.add(t, "gpython has no annotated assignment; leave the type of %s out", t.text)
		}
	}
	return nil
}

// imports reads the modules of an import statement.
func (l *linter) imports(i int) (siblings []string) {
	from := l.at(i).text == "from"
	for k := i + 1; l.at(k).kind != newline; {
		t, dotted := l.at(k), ""
		for ; l.at(k).kind == name && l.at(k).text != "import" && l.at(k).text != "as" || l.at(k).text == "." || l.at(k).text == "..."; k++ {
			dotted += l.at(k).text
		}
		known := slices.Contains(modules, dotted)
		file := filepath.Join(l.dir, dotted+".py")
		text, err := os.ReadFile(file)
		switch {
		case known && !from && strings.Contains(dotted, "."):
			l.add(t, "import %s: gpython cannot import a part of a package; write from %s import …", dotted, dotted)
		case known:
			if as := t; !from {
				if l.at(k).text == "as" {
					as = l.at(k + 1)
				}
				l.modules[as.text] = dotted
			}
		case dotted == "agentfly.envs":
			l.add(t, "agentfly.envs needs async functions, which gpython does not have; use stateful=True and state()")
		case strings.HasPrefix(dotted, "agentfly."):
			l.found = append(l.found, fmt.Sprintf("%d:%d: ModuleNotFoundError: %s is not offered here; from agentfly import tool, reward, agent, state", t.line, t.column, dotted))
		case !strings.Contains(dotted, ".") && err == nil:
			siblings = append(siblings, dotted)
			l.siblings = append(l.siblings, scan(string(text))...)
		default:
			l.found = append(l.found, fmt.Sprintf("%d:%d: ModuleNotFoundError: No module named '%s'; install it for CPython and use runtime: cpython: gpython has %s",
				t.line, t.column, dotted, strings.Join(modules[4:], ", ")))
		}
		for from && l.at(k).kind != newline || l.at(k).kind != newline && l.at(k).text != "," {
			k++ // the names, or as NAME
		}
		if l.at(k).text == "," {
			k++
		}
	}
	return siblings
}

// token looks at one token among its neighbours.
func (l *linter) token(i int) {
	t, before, after := l.at(i), l.at(i-1), l.at(i+1)
	opened := before.text == "," || before.text == "(" || before.text == "[" || before.text == "{"
	in := t.within[max(len(t.within)-1, 0):]
	switch {
	case t.kind == text && strings.ContainsAny(t.text[:strings.IndexAny(t.text, `"'`)], "fF"):
		l.add(t, "gpython has no f-strings; use \"…\" %% (…) or \"…\".format(…)")
	case t.kind == number && strings.Contains(t.text, "_"):
		l.add(t, "gpython has no _ in numbers; write %s", strings.ReplaceAll(t.text, "_", ""))
	case (t.kind == number || t.text == "(") && opened && in == "{" && l.key(i):
		l.add(t, "gpython's dicts have string keys only; write \"%s\" or use a list of pairs", t.text)
	case t.kind == name:
		l.name(i)
	case t.text == ":=":
		l.add(t, "gpython has no assignment expression :=; assign before")
	case t.text == "@" && !t.first || t.text == "@=":
		l.add(t, "gpython has no operator @; write the sum")
	case t.text == "/" && opened && (after.text == "," || after.text == ")"):
		l.add(t, "gpython has no positional-only arguments; leave / out")
	case (t.text == "*" || t.text == "**") && opened && (in == "[" || in == "{"):
		l.add(t, "gpython cannot unpack with %s in a list, a set or a dict; use + or a loop", t.text)
	case t.text == "|" && (before.text == "None" || after.text == "None"):
		l.add(t, "gpython has no type X | None; write Optional[X], from typing import Optional")
	case t.text == "%=":
		l.add(t, "gpython computes %%= wrongly for strings; write x = x %% y")
	}
}

// key tells whether the number or tuple at i is a key of a dict.
func (l *linter) key(i int) bool {
	depth := len(l.at(i).within)
	if l.at(i).text == "(" {
		for i++; l.at(i).kind != newline && !(l.at(i).text == ")" && len(l.at(i).within) == depth+1); i++ {
		}
	}
	return l.at(i+1).text == ":"
}

func (l *linter) name(i int) {
	t, before, after := l.at(i), l.at(i-1), l.at(i+1)
	switch {
	case before.text == ".":
		l.attribute(i)
	case before.text == "def" && strings.HasPrefix(t.text, "__") && strings.HasSuffix(t.text, "__") && !slices.Contains(special, t.text):
		l.add(t, "gpython does not call %s; give the method another name, and call it", t.text)
	case t.text == "async":
		l.add(t, "gpython has no async %s; write a plain function", after.text)
	case t.text == "await":
		l.add(t, "gpython has no await; call a plain function")
	case t.text == "env_cls" && after.text == "=" && t.within != "":
		l.add(t, "env_cls needs async functions, which gpython does not have; use stateful=True and state()")
	case slices.Contains(generics, t.text) && after.text == "[":
		l.add(t, "gpython has no %s[…]; write %s[…], from typing import %[2]s", t.text, strings.ToUpper(t.text[:1])+t.text[1:])
	case slices.Contains(missing, t.text) && after.text == "(" && before.text != "def" && before.text != "class" && !l.defines(t.text):
		l.add(t, "gpython has no function %s; write it out", t.text)
	}
}

// attribute looks at a name after a point.
func (l *linter) attribute(i int) {
	t, owner := l.at(i), l.at(i-2)
	module, is := l.modules[owner.text]
	switch {
	case is && l.at(i-3).text != "." && !l.binds(owner.text):
		if !offers(module, t.text) {
			l.add(t, "gpython's %s has no %s; write it out", module, t.text)
		}
	case slices.Contains(noMethods, t.text) && l.at(i+1).text == "(" && !l.defines(t.text):
		l.add(t, "gpython has no method %s; write it out", t.text)
	}
}

// binds tells whether the file gives the name of a module that it imports to something else as well: to a parameter or a variable, which has
// attributes of its own.
func (l *linter) binds(module string) bool {
	statement := 0
	for i, t := range l.tokens {
		if t.first {
			statement = i
		}
		if t.kind != name || t.text != module {
			continue
		}
		begins, before, after := l.at(statement).text, l.at(i-1).text, l.at(i+1).text
		switch {
		case begins == "import" || begins == "from" || before == "." || after == ".": // no name that is bound has a point behind it
		case begins == "def" && (before == "(" || before == "," || before == "*" || before == "**"),
			before == "lambda", before == "for", before == "as",
			before == "," && after == "in",
			t.within == "" && (after == "=" || after == "," && t.first):
			return true
		}
	}
	return false
}

// offers tells whether a module of gpython's, written in Go, has a name. Of other modules it does not know.
func offers(module, word string) bool {
	impl := py.GetModuleImpl(module)
	if !slices.Contains([]string{"glob", "math", "os", "string", "tempfile", "time"}, module) || impl == nil || strings.HasPrefix(word, "__") {
		return true
	}
	_, isValue := impl.Globals[word]
	if _, isAdded := mathAdded[word]; isAdded && module == "math" {
		return true
	}
	return isValue || slices.ContainsFunc(impl.Methods, func(m *py.Method) bool { return m.Name == word })
}

// defines tells whether the file, or a module of its folder, has a function, class or variable of that name.
func (l *linter) defines(word string) bool {
	for _, tokens := range [][]token{l.tokens, l.siblings} {
		for i, t := range tokens {
			if t.kind != name || t.text != word {
				continue
			}
			before := tokens[max(i-1, 0)].text
			if before == "def" || before == "class" || t.first && tokens[min(i+1, len(tokens)-1)].text == "=" {
				return true
			}
		}
	}
	return false
}
