// Package gateway lets agents that are programs of their own sample from the policy, over the APIs that they speak already, and keeps what was
// sampled as the samples of a trajectory, token by token as the engine returned them.
//
//	agent ─HTTP─► dialects: Request ─► Session: whose it is, a retry, the budget
//	                                      │ history: the messages are matched with what was said before, and the sampled ids go on
//	                                      ▼
//	                                   prompt ids ─► engines.Engine ─► commit: joins the sample that the prompt extends, or begins one
//	                                                                      │ Record: in the log
//	agent ◄─HTTP── dialects: Reply ◄──────────────────────────────────────┘
//
// An API key is a session, and a session is one trajectory. A call joins a sample if and only if its prompt is that sample's ids and more; otherwise a
// sample begins, whose prompt is not trained. So every sampled token is trained once, whatever the agent does to its history: edits,
// compaction, sub-agents, retries and parallel branches are samples of their own.
//
// A reply is whole and in the log before the first byte of it is sent: what an agent has read is never lost. Streams are therefore written after
// sampling, with keep-alives before.
//
// A Session holds its calls (which of them a request asks for again), spending (of the budget), prompts (ids of a request's messages), growth (the
// trajectory, and the history that later calls go on after), recovered (what an earlier process recorded, with what was posted then), faults and
// refusals. None of them knows the session.
//
// It does not start agents (package orchestrator/rollout does), score trajectories or train.
package gateway
