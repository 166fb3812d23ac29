package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An image is refused in the words and the form of each dialect, wherever it stands; nothing is sampled or recorded.
func TestImagesAreRefused(t *testing.T) {
	b := newBench(t, byRound("a"))
	const png = "data:image/png;base64,AAAA"
	for _, c := range []struct{ path, body, param, says string }{
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"look"},{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"` + png + `"}}]}]}`, "messages", "message 2 of the conversation (user) has an image"},
		{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"` + png + `"}]}]}`, "input", "message 1 of the conversation (user) has an image"},
		{"/v1/messages", `{"max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}]}]}`, "", "message 1 of the conversation (tool) has an image"},
		{"/v1/messages/count_tokens", `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x/y.png"}}]}]}`, "", "message 1 of the conversation (user) has an image"},
	} {
		status, text := b.post(c.path, c.body)
		require.Equal(t, http.StatusBadRequest, status, text)
		var e struct {
			Type  string
			Error struct{ Message, Type, Param string }
		}
		require.NoError(t, json.Unmarshal([]byte(text), &e), text)
		require.Equal(t, "invalid_request_error", e.Error.Type)
		require.Equal(t, c.param, e.Error.Param)
		require.Equal(t, c.says+", and this gateway takes text alone; leave it out, or say in words what it shows", e.Error.Message)
		require.Equal(t, c.param == "", e.Type == "error")
	}
	require.Empty(t, b.told.Turns)
}

// A reward that is none is refused in words of JSON.
func TestRewardsThatAreNone(t *testing.T) {
	b := newBench(t, byRound("a"))
	for body, says := range map[string]string{
		`{"reward":"x"}`: `the reward is not such as {\"reward\": 0.5}: a JSON string does not fit reward`,
		`[]`:             `the reward is not such as {\"reward\": 0.5}: a JSON array does not fit the whole`,
		`{"reward"`:      `the reward is not JSON such as {\"reward\": 0.5}: `,
		`{}`:             "reward is missing",
		`{"rewards":1}`:  `the reward has the unknown key \"rewards\" (did you mean \"reward\"?); allowed: reward, call, id`,

		`{"reward":1,"cal":"x"}`:                       `the reward has the unknown key \"cal\" (did you mean \"call\"?)`,
		`{"reward":1` + strings.Repeat("0", 400) + `}`: `the reward is not such as {\"reward\": 0.5}: a JSON number 1` + strings.Repeat("0", 32) + `… does not fit reward`,
	} {
		status, text := b.post("/agentfly/reward", body)
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, text, says)
		require.NotContains(t, text, "Go struct")
	}
}
