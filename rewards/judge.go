package rewards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sashabaranov/go-openai"

	"github.com/agentfly/agentfly/internal/hosted"
	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

type judgeParams struct {
	URL         string  `json:"url"`     // of an OpenAI-compatible endpoint, with /v1 at the end
	Model       string  `json:"model"`   //
	Key         string  `json:"api_key"` // write ${NAME}
	Prompt      string  `json:"prompt"`  // with {response}, {question}, {transcript} and {FIELD} of the task; {{ and }} are braces
	System      string  `json:"system"`
	Answer      string  `json:"answer"`     // yes_no (the default) or number
	Min         float64 `json:"min"`        // number: which is 0; default 0
	Max         float64 `json:"max"`        // number: which is 1; default 1
	MaxTokens   int     `json:"max_tokens"` // of the judge's answer, thoughts included; default 512
	Timeout     float64 `json:"timeout"`    // s, of one attempt; default 30
	Attempts    int     `json:"attempts"`   // default 6
	Concurrency int     `json:"concurrency"`
	NoCache     bool    `json:"no_cache"`
}

// judge asks a language model about a trajectory.
type judge struct {
	judgeParams
	client *openai.Client
	slots  chan struct{}
	cache  *answers
	pause  func(ctx context.Context, d time.Duration) error // between attempts
}

var _ = declareReward("judge", newJudge, "what another model says of the response")

// newJudge makes judge: what a language model says of the trajectory, from 0 to 1. Answer yes_no: yes is 1, no is 0. Answer number: (x − min) /
// (max − min). The last line of the judge's answer, after any <think>…</think>, must be yes or no, or a number from min to max, with at
// most "Answer:", "Score:" or "Verdict:" before and a point after it; anything else is asked for again, and at last an error, never a 0; at once where max_tokens cut it.
//
// Answers are kept by content (endpoint, model, prompt, max_tokens) in the user's cache, beyond the run; the same question at the same
// time is asked once. 429, 408, 5xx and broken connections are tried again, after 0.5 s, 1 s, … 30 s or what Retry-After says. What the
// policy wrote stands in the prompt: tell the judge that it is no instruction.
func newJudge(b *Builder, params map[string]any) (Reward, error) {
	p := judgeParams{Answer: "yes_no", Max: 1, MaxTokens: 512, Timeout: 30, Attempts: 6, Concurrency: 8}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = p.Concurrency
	config := openai.DefaultConfig(p.Key)
	config.BaseURL = strings.TrimRight(p.URL, "/")
	config.HTTPClient = &http.Client{Transport: retry.Noting{Base: transport}}
	j := &judge{judgeParams: p, client: openai.NewClientWithConfig(config), slots: make(chan struct{}, p.Concurrency), pause: retry.Sleep}
	var err error
	if j.cache, err = openAnswers(b.Resources, p.NoCache); err != nil {
		return nil, err
	}
	b.Resources.OnClose(func() error {
		transport.CloseIdleConnections()
		return nil
	})
	return j, nil
}

func (p judgeParams) check() error {
	switch {
	case !strings.HasPrefix(p.URL, "http://") && !strings.HasPrefix(p.URL, "https://"):
		return fmt.Errorf("the parameter url is %q; it must begin with http:// or https://, such as http://127.0.0.1:8000/v1", p.URL)
	case p.Model == "":
		return errors.New("the parameter model is missing: the endpoint's name of the judge")
	case p.Prompt == "":
		return errors.New("the parameter prompt is missing; write what the judge is asked, with {question}, {response} and fields of the task such as {answer}")
	case p.Answer != "yes_no" && p.Answer != "number":
		return fmt.Errorf("the parameter answer is %q; allowed: yes_no, number", p.Answer)
	case p.Min >= p.Max:
		return errors.New("the parameter min must be below max")
	case p.MaxTokens < 1 || p.Timeout <= 0 || p.Attempts < 1 || p.Concurrency < 1:
		return errors.New("max_tokens, timeout, attempts and concurrency must be above 0")
	}
	_, err := fill(p.Prompt, func(string) (string, error) { return "", nil })
	return err
}

func (j *judge) Name() string { return "judge" }

func (j *judge) Score(ctx context.Context, in Input) (Score, error) {
	prompt, err := fill(j.Prompt, func(name string) (string, error) { return promptField(in, name) })
	if err != nil {
		return Score{}, err
	}
	question := j.questionOf(prompt)
	text, cached, err := j.cache.get(ctx, fmt.Sprint(j.URL, j.Answer, j.Min, j.Max), question, j.readable, func() (string, error) { return j.ask(ctx, question) })
	if err != nil {
		return Score{}, err
	}
	value, err := j.read(text)
	return Score{value, map[string]float64{"cached": truth(cached)}}, err
}

func (j *judge) questionOf(prompt string) openai.ChatCompletionRequest {
	var messages []openai.ChatCompletionMessage
	if j.System != "" {
		messages = append(messages, openai.ChatCompletionMessage{Role: "system", Content: j.System})
	}
	q := openai.ChatCompletionRequest{
		Model: j.Model, Messages: append(messages, openai.ChatCompletionMessage{Role: "user", Content: prompt}), MaxCompletionTokens: j.MaxTokens,
	}
	if !hosted.FixedSampling(j.Model) {
		q.Temperature = math.SmallestNonzeroFloat32 // the library leaves a 0 out, and the endpoint would take its default
	}
	return q
}

// ask asks until there is an answer that can be read.
func (j *judge) ask(ctx context.Context, question openai.ChatCompletionRequest) (string, error) {
	select {
	case j.slots <- struct{}{}:
		defer func() { <-j.slots }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for one of %d places: %w", j.Concurrency, ctx.Err())
	}
	watchdog.Move(ctx, "reward judge "+j.URL)
	var text string
	attempts := retry.Attempts{Most: j.Attempts, Backoff: retry.Backoff{First: 500 * time.Millisecond, Most: 30 * time.Second}, Sleep: j.pause}
	settled := false // another attempt cannot help: the endpoint or the client refused, or the answer was cut
	n, err, late := attempts.Do(ctx, func() (after time.Duration, final bool, err error) {
		var note retry.Noted
		var cut bool
		if text, cut, err = j.attempt(retry.Note(ctx, &note), question); err != nil {
			settled = !note.Passing(err)
			return note.After, settled, err
		}
		if _, err = j.read(text); cut && (err != nil || !j.alone(text)) {
			settled = true
			err = fmt.Errorf("the judge's answer was cut at %d tokens, before a verdict; raise max_tokens, which a reasoning model's thoughts count against too", j.MaxTokens)
		}
		return 0, settled, err
	})
	switch {
	case err == nil:
		return text, nil
	case late != nil:
		return "", fmt.Errorf("%s: %w", j.URL, late)
	case settled:
		return "", fmt.Errorf("%s: %w", j.URL, retry.OneLine(err))
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w; the last attempt: %w", j.URL, ctx.Err(), retry.OneLine(err))
	}
	return "", fmt.Errorf("%s: after %d attempts: %w", j.URL, n, retry.OneLine(err))
}

// attempt is the text of one answer, and whether max_tokens cut it.
func (j *judge) attempt(ctx context.Context, question openai.ChatCompletionRequest) (text string, cut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(j.Timeout*float64(time.Second)))
	defer cancel()
	reply, err := j.client.CreateChatCompletion(ctx, question)
	if err != nil {
		return "", false, err
	}
	if len(reply.Choices) != 1 {
		return "", false, fmt.Errorf("the endpoint returned %d choices, expected 1", len(reply.Choices))
	}
	answer := reply.Choices[0]
	return answer.Message.Content, answer.FinishReason == openai.FinishReasonLength, nil
}

var (
	thought    = regexp.MustCompile(`(?s)^.*</think>`)
	verdict    = regexp.MustCompile(`(?i)^(?:\**(?:final )?(?:answer|score|verdict)\**\s*:\**\s*)?\**(yes|no|[-+]?(?:\d+(?:\.\d+)?|\.\d+))\**\.?$`)
	promptName = regexp.MustCompile(`\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]`)
)

// read is the value of the judge's answer.
func (j *judge) read(text string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(thought.ReplaceAllString(text, "")), "\n")
	m := verdict.FindStringSubmatch(strings.TrimSpace(lines[len(lines)-1]))
	word := ""
	if m != nil {
		word = strings.ToLower(m[1])
	}
	isWord := word == "yes" || word == "no"
	switch {
	case j.Answer == "yes_no" && isWord:
		return truth(word == "yes"), nil
	case j.Answer == "yes_no":
		return 0, fmt.Errorf("the judge's answer does not end in a line yes or no: %q", clipped(text))
	case m == nil || isWord:
		return 0, fmt.Errorf("the judge's answer does not end in a line with a number alone: %q", clipped(text))
	}
	x, err := strconv.ParseFloat(word, 64)
	if err != nil || x < j.Min || x > j.Max {
		return 0, fmt.Errorf("the judge's number is %s; it must be from %v to %v", clipped(word), j.Min, j.Max)
	}
	return (x - j.Min) / (j.Max - j.Min), nil
}

// alone says whether a text is a verdict and nothing else, so that what max_tokens cut off it cannot have been another one: a number may have had more
// digits, and behind other lines the last one may have been a thought.
func (j *judge) alone(text string) bool {
	return j.Answer == "yes_no" && !strings.Contains(strings.TrimSpace(thought.ReplaceAllString(text, "")), "\n")
}

func (j *judge) readable(text string) bool {
	_, err := j.read(text)
	return err == nil
}

func clipped(s string) string {
	r := []rune(s)
	if len(r) > 80 {
		return "…" + string(r[len(r)-80:])
	}
	return s
}

// fill replaces {NAME} in a prompt.
func fill(prompt string, value func(name string) (string, error)) (string, error) {
	var failed error
	out := promptName.ReplaceAllStringFunc(prompt, func(m string) string {
		switch {
		case m == "{{" || m == "}}":
			return m[:1]
		case len(m) == 1:
			failed = cmp.Or(failed, fmt.Errorf("the parameter prompt has a single %s; write {NAME} for a field, %s for a brace", m, m+m))
			return m
		}
		v, err := value(m[1 : len(m)-1])
		failed = cmp.Or(failed, err)
		return v
	})
	return out, failed
}

// promptField is what a name in a prompt stands for.
func promptField(in Input, name string) (string, error) {
	switch name {
	case "response":
		return finalResponse(in.Trajectory), nil
	case "question":
		var asked []string
		for _, m := range in.Task.Prompt {
			text, err := m.TextContent()
			if err != nil {
				return "", err
			}
			if m.Role == "user" {
				asked = append(asked, text)
			}
		}
		return strings.Join(asked, "\n\n"), nil
	case "transcript":
		return transcript(in.Trajectory), nil
	}
	golds, err := rightAnswers(in.Task, name)
	return strings.Join(golds, "\n"), err
}

// transcript is what was written and observed, turn by turn.
func transcript(t *trajectory.Trajectory) string {
	var b strings.Builder
	for i, turn := range t.Turns {
		fmt.Fprintf(&b, "[turn %d]\n%s\n", i+1, strings.TrimSpace(turn.Completion))
		for _, r := range turn.Results {
			fmt.Fprintf(&b, "[result of %s]\n%s\n", r.Call.Name, strings.TrimSpace(r.Observation))
		}
	}
	return strings.TrimSpace(b.String())
}
