package store

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
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
					Observation: "late", Failed: true, Broken: true, Cause: trajectory.CauseBroken, Retries: 2, Duration: time.Minute,
				}, {Observation: "done", Terminal: true, Cached: true, Info: []byte(`{"hits":3}`)}},
			},
			{CompletionStart: 5, CompletionEnd: 8, ObservationEnd: 8, ParseErrors: 2, FinalAnswer: "4", AnsweredThisTurn: true, Reward: &paid, Anchor: "a", Shared: "b"},
		},
	}
}

func TestRowsAreWrittenAsDescribed(t *testing.T) {
	tr := &trajectory.Trajectory{ID: "x", Samples: []*trajectory.Sample{{}}}
	tr.Samples[0].AppendObservation([]int32{5, 300})
	require.NoError(t, tr.Samples[0].AppendResponse([]int32{7}, []float32{-0.5}, []int32{3}))
	row := encodeRow(tr, &mark{}, true)
	require.Equal(t, "01"+"0178"+"00"+"01"+ // format, id, first turn, one piece
		"00"+"00"+"03"+"05ac0207"+ // sample 0 from token 0, three ids
		"0201"+"000000bf"+"0106"+"00", // two off and one on the mask; -0.5; one token of version 3; no turn
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
	require.Nil(t, encodeRow(want, &m, true), "all of it is stored")
	require.Less(t, len(rows[1]), 120)
	got := &trajectory.Trajectory{ID: want.ID}
	require.ErrorContains(t, grow(got, rows[1]), "it begins at turn 1, and 0 are known")
	require.NoError(t, grow(got, rows[0]))
	require.NoError(t, grow(got, rows[1]))
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
	f.Fuzz(func(t *testing.T, body []byte) {
		body = binary.LittleEndian.AppendUint32(body[:len(body):len(body)], crc32.Checksum(body, castagnoli))
		id, first, _, err := rowID(body)
		if err != nil || first != 0 {
			return
		}
		got := &trajectory.Trajectory{ID: id}
		if grow(got, body) != nil {
			return
		}
		var m mark
		again := encodeRow(got, &m, true)
		if again == nil {
			return
		}
		back := &trajectory.Trajectory{ID: id}
		require.NoError(t, grow(back, again))
		require.Equal(t, encodeRow(got, &mark{}, true), encodeRow(back, &mark{}, true))
	})
}
