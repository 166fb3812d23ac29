package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// completions are the shells' scripts; each asks the binary itself what can follow, and falls back to file names.
var completions = map[string]string{
	"bash": `_agentfly() {
  local cur=${COMP_WORDS[COMP_CWORD]}
  local line=("${COMP_WORDS[@]:0:COMP_CWORD}")
  [[ $cur == -* ]] && line+=("$cur")
  COMPREPLY=($(compgen -W "$("${line[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _agentfly agentfly
`,
	"zsh": `#compdef agentfly
_agentfly() {
  local -a line found
  line=(${words[1,CURRENT-1]})
  [[ $words[CURRENT] == -* ]] && line+=($words[CURRENT])
  found=(${(f)"$(_CLI_ZSH_AUTOCOMPLETE_HACK=1 ${line} --generate-bash-completion 2>/dev/null)"})
  if (( $#found )); then _describe 'agentfly' found; else _files; fi
}
compdef _agentfly agentfly
`,
}

// shells are those that have a script.
var shells = []string{"bash", "zsh", "fish"}

func (e *env) completion(x *cli.Context) error {
	shell, err := one(x, "bash, zsh or fish")
	if err != nil {
		return err
	}
	script, ok := completions[shell]
	if shell == "fish" {
		script, err = x.App.ToFishCompletion()
		ok = true
	}
	if err != nil {
		return err
	}
	if !ok {
		return usagef("there is no completion for %q; allowed: %s", shell, strings.Join(shells, ", "))
	}
	_, err = fmt.Fprint(e.out, script)
	return err
}
