package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlagsMayFollowTheArguments(t *testing.T) {
	commands := Program{Out: io.Discard, ErrOut: io.Discard}.app(nil).Commands
	for _, c := range []struct{ in, want string }{
		{"agentfly train JOB --output DIR --resume", "agentfly train --output DIR --resume JOB"},
		{"agentfly train --set a.b=1 JOB --set=c=2 --seed 3", "agentfly train --set a.b=1 --set=c=2 --seed 3 JOB"},
		{"agentfly tools call NAME {} -- --x", "agentfly tools call NAME {} -- --x"},
		{"agentfly inspect trajectory --run D --id X", "agentfly inspect trajectory --run D --id X"},
		{"agentfly", "agentfly"},
		{"agentfly train JOB --output", "agentfly train --output JOB"},
	} {
		require.Equal(t, c.want, strings.Join(flagsFirst(commands, strings.Fields(c.in)), " "))
	}
}
