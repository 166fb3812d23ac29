// Package hosted knows by their names what hosted models take, so that all that asks endpoints sends the same.
//
// It does not ask any: engines/openai and the reward judge do.
package hosted

import "github.com/sashabaranov/go-openai"

// FixedSampling tells whether a model samples at temperature 1 and top_p 1 only, and refuses requests that name them: OpenAI's reasoning models,
// by their names. The rule is go-openai's, which sends no request that breaks it, so that it also holds for gpt-5-chat-latest, whose endpoint
// would take a temperature.
func FixedSampling(model string) bool {
	return openai.NewReasoningValidator().Validate(openai.ChatCompletionRequest{Model: model, Temperature: 0.5}) != nil
}
