// Package agentfly trains language-model agents with reinforcement learning: multi-turn rollouts with tools against a
// local libtorch engine or a vLLM server, token-exact masks, and a masked policy-gradient update in libtorch.
package agentfly
