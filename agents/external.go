package agents

var _ = declareKind(Kind{Name: External, Description: "a program of your own, over OpenAI's and Anthropic's APIs; see docs/gateway.md"})
