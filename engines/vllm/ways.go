package vllm

const backendAgentFly = "agentfly"
