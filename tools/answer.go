package tools

import "context"

type answerArguments struct {
	Answer string `json:"answer" doc:"the final answer, and nothing else"`
}

// NewAnswer returns the tool "answer": its call ends the trajectory with the final answer. Formats that write the final answer as text need
// no such tool.
func NewAnswer() Tool {
	return NewFunc("answer", "Gives the final answer and ends the task.",
		func(_ context.Context, a answerArguments) (string, error) { return a.Answer, nil },
		func(s *Spec) {
			s.Terminal = true
			s.Limits.MaxTokens = 1 << 20 // the model wrote it itself: no marker in it
		})
}
