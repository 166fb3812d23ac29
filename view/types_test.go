package view

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

// The page's types name the fields of the answers, and which of them may be left out or null.
func TestThePageKnowsTheAnswers(t *testing.T) {
	source, err := os.ReadFile("page/src/api.ts")
	require.NoError(t, err)
	for name, answer := range map[string]any{
		"Run": listed{}, "Evaluation": shownEvaluation{}, "Band": band{}, "Value": shownValue{}, "Entry": shownEntry{}, "Outcome": shownOutcome{}, "Call": shownCall{}, "Turn": shownTurn{},
		"Sample": shownSample{}, "Part": trajectory.Part{}, "Message": shownMessage{}, "Try": shownTry{}, "Trajectory": shownTrajectory{},
	} {
		want := map[string]string{}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(answer)) {
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || tag == "-" {
				continue
			}
			want[tag] = ""
			if options == "omitempty" {
				want[tag] = "?"
			}
			if f.Type == reflect.TypeFor[num]() || f.Type == reflect.TypeFor[*num]() {
				want[tag] += " null"
			}
		}
		require.Equal(t, want, fieldsOf(t, string(source), name), name)
	}
}

// fieldsOf are the fields of a type of the page: "?" of one that may be left out, " null" of one that may be null.
func fieldsOf(t *testing.T, source, name string) map[string]string {
	t.Helper()
	found := regexp.MustCompile(`(?s)export type ` + name + ` = \{(.*?)\};\n`).FindStringSubmatch(source)
	require.Len(t, found, 2, name)
	inner := regexp.MustCompile(`\{[^{}]*\}`).ReplaceAllString(found[1], "") // types without a name
	fields := map[string]string{}
	for _, f := range strings.Split(strings.TrimSuffix(strings.TrimSpace(inner), ";"), ";") {
		field, kind, ok := strings.Cut(f, ":")
		require.True(t, ok, f)
		field, optional := strings.CutSuffix(strings.TrimSpace(field), "?")
		fields[field] = ""
		if optional {
			fields[field] = "?"
		}
		if strings.HasSuffix(strings.TrimSpace(kind), "number | null") {
			fields[field] += " null"
		}
	}
	return fields
}
