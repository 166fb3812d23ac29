// Package orchestrator carries out jobs: it trains, evaluates, samples, replays and checks them. Its sub-packages own the parts; this one
// owns the order in which they act.
//
//	job ─► checks, before a model is opened
//	 │
//	 ▼                                                         prompt ids
//	data ──tasks──► schedule ──groups──► rollout ◄──────────────────────────────────────► engines.Engine
//	                   ▲ │                  │ │       ids, logprobs, policy versions             ▲
//	                   │ │                  │ └──turns, before they are used──► store            │
//	                   └─┼──trajectories────┘                                                    │
//	                     │ batch                                                                 │
//	                     ▼                                                                       │
//	                 objective: reinforcement learning, SFT or distillation                      │
//	                     │ batch                                                                 │
//	                     ▼                                                                       │
//	                  trainer: advantages, packing, loss, optimizer ──new version──► weights ────┘
//	                     │ metrics                                                   with a proof
//	                     ▼
//	                  report ──► store, metrics.jsonl, summary.json     checkpoint ──► checkpoints/step-N
//
//	train --resume: checkpoint, then recovery of the log     replay: the recorded run once more, held against its log
//
// The sub-packages, from the top down; each imports only those below it:
//
//   - replay samples once more what a run recorded, and says where it differs.
//   - recovery reads from the log what a resumed run goes on with.
//   - overview looks at run folders from outside: states, curves, what differs.
//   - runfolder owns the files of a run folder, and the lock that keeps other processes out.
//   - objective is what a run learns from and by.
//   - checkpoint owns the checkpoints: files, checksums, the links last and best.
//   - report owns the numbers that a run tells of itself.
//   - schedule decides when groups are sampled and which of them a step trains.
//   - session opens what a job names: policy, engine, renderer, agent, tools, rewards.
//   - weights opens the engine and brings each policy version to it.
//   - processes starts and joins the processes that train together.
//   - rollout samples trajectories: completion, calls, observation, reward.
//   - data reads tasks and conversations, and deals them out.
//   - job reads the job file and checks it.
//   - store is the log of a run in one SQLite file.
//   - tree plans where the trajectories of a task branch.
//   - external runs agents that are programs of their own.
//
// Here, train.go tells a run from its first check to its summary. A run (run.go) opens and closes what its training (training.go) takes step by
// step; a recorder (recorder.go) writes down what was done, and checkpoints.go what can be gone on from. replay.go takes the steps of a
// recorded run once more, follow.go is a rank other than 0, and commands.go and stored.go hold what does not train. No token is sampled and no
// loss computed here. docs/architecture.md follows a token, a tool call and a setting through the code.
package orchestrator
