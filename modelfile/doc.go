// Package modelfile reads and writes what a language model is stored in: Hugging Face directories (config.json,
// safetensors, tokenizer files), GGUF files, and the cache of the Hugging Face hub, which it can also fill.
//
// It owns the file formats and nothing of the computation. Weights are memory-mapped; what a Model returns as bytes is
// borrowed from the mapping and valid until Close. Every length, offset and count in a file is checked before use: a
// truncated or lying file gives one error that names the file and the field, never a panic and never a large allocation.
// A Model is safe for concurrent use until Close.
//
// It does not compute with tensors: packages policy and cgo do.
package modelfile
