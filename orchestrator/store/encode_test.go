package store

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func twoTurns(t testing.TB) *trajectory.Trajectory {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{5, 300})
	require.NoError(t, s.AppendResponse([]int32{7, 8}, []float32{-0.5, -1.25}, []int32{3, 3}))
	s.AppendObservation([]int32{9})
	require.NoError(t, s.AppendResponse([]int32{1, 2, 70000}, []float32{0, -2, -3}, []int32{3, 4, 4}))
	paid := 0.25
	return &trajectory.Trajectory{
		ID: "train-0-0-0", Samples: []*trajectory.Sample{s},
		Turns: []trajectory.Turn{
			{
				CompletionStart: 2, CompletionEnd: 4, ObservationEnd: 5, Completion: "héllo", FinishReason: "stop", Seed: 1 << 63, CachedTokens: 1, EngineSeconds: 0.5, ToolSeconds: 2,
				Results: []trajectory.ToolResult{{Call: trajectory.ToolCall{ID: "1", Name: "calc", Arguments: []byte(`{"x": 1}`)}, Observation: "2", Failed: true, Duration: -time.Second}, {}, {
					Observation: "late", Failed: true, Cause: trajectory.CauseBroken, Failure: trajectory.FailureInfrastructure, Retries: 2, Duration: time.Minute,
				}, {Observation: "done", Terminal: true, Cached: true, Info: []byte(`{"hits":3}`)}},
			},
			{CompletionStart: 5, CompletionEnd: 8, ObservationEnd: 8, ParseErrors: 2, FinalAnswer: "4", AnsweredThisTurn: true, InThought: true, Reward: &paid, Anchor: "a", Shared: "b"},
		},
	}
}

func TestRowsAreWrittenAsDescribed(t *testing.T) {
	tr := &trajectory.Trajectory{ID: "x", Samples: []*trajectory.Sample{{}}}
	tr.Samples[0].AppendObservation([]int32{5, 300})
	require.NoError(t, tr.Samples[0].AppendResponse([]int32{7}, []float32{-0.5}, []int32{3}))
	row := encodeRow(tr, &mark{}, true)
	require.Equal(t, "02"+"0178"+"01"+"00"+"01"+ // format, id, ended, first turn, one piece
		"00"+"00"+"00"+"03"+"05ac0207"+ // sample 0 without a role, from token 0, three ids
		"0201"+"000000bf"+"0106"+"00"+"00", // two off and one on the mask; -0.5; one token of version 3; no media; no turn
		hex.EncodeToString(row[:len(row)-4]))

	tr.Samples[0].Role = "actor"
	require.NoError(t, tr.Samples[0].AppendMedium("image", trajectory.Digest{0xab, 31: 0xcd}, []int32{9, 9}))
	tr.Turns = []trajectory.Turn{{Sample: 0, CompletionStart: 2, CompletionEnd: 3, ObservationEnd: 3, Role: "actor"}}
	m := mark{}
	row = encodeRow(tr, &m, false)
	require.Equal(t, "02"+"0178"+"00"+"00"+"01"+ // not ended
		"00"+"056163746f72"+"00"+"03"+"05ac0207"+"0201"+"000000bf"+"0106"+"00"+"01"+ // its role; no media yet; a turn
		"00"+"04"+"06"+"06"+"00"+"00"+"00"+"00"+"00"+strings.Repeat("00", 24)+"00"+"00"+"00"+"00"+"056163746f72", // its numbers and texts; its role
		hex.EncodeToString(row[:len(row)-4]))
	row = encodeRow(tr, &m, true)
	require.Equal(t, "02"+"0178"+"01"+"01"+"01"+ // ended, after one turn
		"00"+"056163746f72"+"03"+"02"+"0909"+"02"+ // two ids from token 3, off the mask
		"01"+"00"+"02"+"05696d616765"+"ab"+strings.Repeat("00", 30)+"cd"+"00", // one medium at its start, of two tokens; no turn
		hex.EncodeToString(row[:len(row)-4]))
}

func TestATrajectoryGrowsRowByRow(t *testing.T) {
	want := twoTurns(t)
	var m mark
	var rows [][]byte
	short := *want
	for k, end := range []int{5, 8} {
		short.Turns = want.Turns[:k+1]
		s := want.Samples[0]
		short.Samples = []*trajectory.Sample{{TokenIDs: s.TokenIDs[:end], ResponseMask: s.ResponseMask[:end], SamplingLogprobs: s.SamplingLogprobs[:end], PolicyVersion: s.PolicyVersion[:end]}}
		rows = append(rows, encodeRow(&short, &m, false))
	}
	require.Nil(t, encodeRow(want, &m, false), "all of it is stored")
	end := encodeRow(want, &m, true)
	require.Len(t, end, 1+12+1+1+1+4, "its end, without pieces")
	head, _, err := readHead(end)
	require.NoError(t, err)
	require.Equal(t, rowHead{id: "train-0-0-0", ended: true, first: 2}, head)
	require.Less(t, len(rows[1]), 120)
	got := &trajectory.Trajectory{ID: want.ID}
	require.ErrorContains(t, grow(got, rows[1]), "it begins at turn 1, and 0 are known")
	require.NoError(t, grow(got, rows[0]))
	require.NoError(t, grow(got, rows[1]))
	require.NoError(t, grow(got, end))
	require.Equal(t, want.Turns, got.Turns)
	require.Equal(t, want.Samples, got.Samples)
	got = &trajectory.Trajectory{ID: want.ID}
	require.NoError(t, grow(got, encodeRow(want, &mark{}, true)), "or all at once")
	require.Equal(t, want.Samples, got.Samples)
	require.Equal(t, want.Turns, got.Turns)
	require.ErrorContains(t, grow(&trajectory.Trajectory{ID: "other"}, rows[0]), `it belongs to trajectory "train-0-0-0"`)
	rows[0][9] ^= 1
	require.ErrorContains(t, grow(&trajectory.Trajectory{ID: want.ID}, rows[0]), "its checksum is wrong")
}

// withMedia is a trajectory of two roles with images in a prompt and in an observation.
func withMedia(t testing.TB) *trajectory.Trajectory {
	tr := twoTurns(t)
	other := &trajectory.Sample{Role: "reviewer"}
	other.AppendObservation([]int32{1})
	require.NoError(t, other.AppendMedium(trajectory.MediaImage, trajectory.Digest{1}, []int32{9, 9, 9}))
	require.NoError(t, other.AppendMedium("audio", trajectory.Digest{2}, []int32{8}))
	require.NoError(t, other.AppendResponse([]int32{4}, []float32{-1}, []int32{0}))
	other.AppendObservation([]int32{1})
	require.NoError(t, other.AppendMedium(trajectory.MediaImage, trajectory.Digest{1}, []int32{9, 9, 9}))
	require.NoError(t, other.AppendResponse([]int32{4}, []float32{-1}, []int32{0}))
	tr.Samples = append(tr.Samples, other)
	for i := range tr.Turns {
		tr.Turns[i].Role = "actor"
	}
	tr.Samples[0].Role = "actor"
	tr.Turns = append(tr.Turns,
		trajectory.Turn{Sample: 1, CompletionStart: 5, CompletionEnd: 6, ObservationEnd: 10, Role: "reviewer"},
		trajectory.Turn{Sample: 1, CompletionStart: 10, CompletionEnd: 11, ObservationEnd: 11, Role: "reviewer"})
	tr.Turns[2].Results = []trajectory.ToolResult{{Failed: true, Failure: trajectory.FailurePolicy}} // an environment's, without a cause
	require.NoError(t, other.Check())
	return tr
}

func TestRolesAndMediaComeBack(t *testing.T) {
	want := withMedia(t)
	var m mark
	got := &trajectory.Trajectory{ID: want.ID}
	for k := range want.Turns {
		short := *want
		short.Turns = want.Turns[:k+1]
		if k < 2 { // the second sample begins with the third turn
			short.Samples = want.Samples[:1]
		}
		require.NoError(t, grow(got, encodeRow(&short, &m, false)))
	}
	require.Equal(t, want.Samples, got.Samples)
	require.Equal(t, want.Turns, got.Turns)

	other := *want.Samples[1]
	other.Role = "actor"
	want.Samples[1] = &other
	require.NoError(t, other.AppendMedium(trajectory.MediaImage, trajectory.Digest{3}, []int32{9}))
	require.ErrorContains(t, grow(got, encodeRow(want, &m, true)), `it continues sample 1 of role "reviewer" as role "actor"`)
	other.Role, other.Media = "reviewer", append(other.Media[:3:3], trajectory.Medium{At: 11, Tokens: 2, Kind: "image", SHA256: trajectory.Digest{3}}, trajectory.Medium{At: 11, Tokens: 1, Kind: "image", SHA256: trajectory.Digest{3}})
	m = mark{turns: 4, lens: []int{8, 11}}
	require.ErrorContains(t, grow(got, encodeRow(want, &m, true)), "its media are not in order")
}

// rowsOfVersion2 are the rows of turns in testdata/version2.sql, without their checksums.
func rowsOfVersion2(t testing.TB) (rows [][]byte) {
	script, err := os.ReadFile("testdata/version2.sql")
	require.NoError(t, err)
	for _, found := range regexp.MustCompile(`INTO "turns" VALUES\(\d+,X'(\w+)'`).FindAllSubmatch(script, -1) {
		row, err := hex.DecodeString(string(found[1]))
		require.NoError(t, err)
		rows = append(rows, row[:len(row)-4])
	}
	require.Len(t, rows, 4)
	return rows
}

func TestSamplesWithoutTurns(t *testing.T) {
	for name, samples := range map[string][]*trajectory.Sample{
		"none":        nil,
		"a recorded":  twoTurns(t).Samples,
		"one and two": {twoTurns(t).Samples[0], twoTurns(t).Samples[0]},
	} {
		tr := &trajectory.Trajectory{ID: name, Samples: samples}
		got := &trajectory.Trajectory{ID: name}
		if row := encodeRow(tr, &mark{}, true); row != nil {
			require.NoError(t, grow(got, row))
		}
		require.Equal(t, samples, got.Samples, name)
	}
}

// Whatever a row holds, reading it ends with a trajectory or with an error; what was read is written as the same row.
func FuzzRow(f *testing.F) {
	row := encodeRow(twoTurns(f), &mark{}, true)
	f.Add(row[:len(row)-4])
	f.Add([]byte{1, 0, 0, 1, 0, 0, 0, 0})
	row = encodeRow(withMedia(f), &mark{}, true)
	f.Add(row[:len(row)-4])
	f.Add(rowsOfVersion2(f)[0])
	f.Fuzz(func(t *testing.T, body []byte) {
		body = binary.LittleEndian.AppendUint32(body[:len(body):len(body)], crc32.Checksum(body, castagnoli))
		head, _, err := readHead(body)
		if err != nil || head.first != 0 {
			return
		}
		got := &trajectory.Trajectory{ID: head.id}
		if grow(got, body) != nil {
			return
		}
		var m mark
		again := encodeRow(got, &m, true)
		back := &trajectory.Trajectory{ID: head.id}
		require.NoError(t, grow(back, again))
		require.Equal(t, encodeRow(got, &mark{}, true), encodeRow(back, &mark{}, true))
	})
}

// What an environment gave comes back, and only rows that hold some have the format that older programs do not read.
func TestOutcomesComeBack(t *testing.T) {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1, 2})
	require.NoError(t, s.AppendResponse([]int32{3}, []float32{-1}, []int32{0}))
	tr := &trajectory.Trajectory{ID: "x", Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{
		{CompletionStart: 2, CompletionEnd: 3, ObservationEnd: 3, Results: []trajectory.ToolResult{{Observation: "a wall"}}},
	}}
	require.Equal(t, byte(rowFormat2), encodeRow(tr, &mark{}, true)[0])
	for _, o := range []*trajectory.Outcome{{}, {Reward: -0.5, Anchor: "s1"}, {Reward: 1, Terminated: true, Success: true}, {Truncated: true, State: []byte(`{"at":3}`)}} {
		tr.Turns[0].Results = []trajectory.ToolResult{{Observation: "go on"}, {Observation: "a wall", Outcome: o, Failed: true, Cause: trajectory.CauseRaised, Failure: trajectory.FailurePolicy}}
		row := encodeRow(tr, &mark{}, true)
		require.Equal(t, byte(rowFormat3), row[0])
		back := &trajectory.Trajectory{ID: "x"}
		require.NoError(t, grow(back, row))
		require.Equal(t, tr.Turns, back.Turns)
	}
}

// How a turn came in comes back, and only rows that hold such turns have the format that older programs do not read.
func TestIncomingComesBack(t *testing.T) {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{1, 2})
	require.NoError(t, s.AppendResponse([]int32{3, 4}, []float32{-1, -2}, []int32{0, 0}))
	tr := &trajectory.Trajectory{ID: "x", Samples: []*trajectory.Sample{s}, Turns: []trajectory.Turn{
		{CompletionStart: 2, CompletionEnd: 3, ObservationEnd: 3, Role: "planner", Incoming: &trajectory.Incoming{
			Dialect: "messages", Digest: "00ff", Asked: []byte(`{"temperature":0.5}`), Tools: true, Stop: []string{"\n"}, Role: "planner", After: -1, Whole: true,
			Messages: []byte(`[{"role":"user","content":"x"}]`), Schemas: []json.RawMessage{[]byte(`{"type":"function"}`)},
		}},
		{CompletionStart: 3, CompletionEnd: 4, ObservationEnd: 4, Results: []trajectory.ToolResult{{Observation: "o", Outcome: &trajectory.Outcome{Reward: 1}}}},
	}}
	row := encodeRow(tr, &mark{}, true)
	require.Equal(t, byte(rowFormat4), row[0])
	back := &trajectory.Trajectory{ID: "x"}
	require.NoError(t, grow(back, row))
	require.Equal(t, tr.Turns, back.Turns)
	tr.Turns[0].Incoming = nil
	require.Equal(t, byte(rowFormat3), encodeRow(tr, &mark{}, true)[0])
}
