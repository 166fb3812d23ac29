// Package tokenizer turns text into token ids and back exactly as Hugging Face's `tokenizers` 0.23 does. It reads
// tokenizer.json files and the vocabulary of a GGUF file, for two kinds of byte-pair encoding (arXiv:1508.07909):
// byte-level (GPT-2, SmolLM2, Qwen, Llama 3, DeepSeek, GPT-4o) and characters with metaspace and byte fallback
// (Llama 2, Mistral 7B, Gemma).
//
// Exact or refused: a model type, normalizer, pre-tokenizer, regular expression, post-processor or decoder that is not
// reproduced exactly is an error at load that names it; nothing is approximated. The character classes and the
// normalization tables come from the library itself (unicode.txt), whose parts follow different Unicode versions.
//
// Text that is not valid UTF-8 is first made so as Python's decode(errors="replace") and Rust's from_utf8_lossy do: one
// U+FFFD for each maximal broken part. Truncation and padding settings of a file are ignored, as transformers does
// unless asked.
//
// A Tokenizer does not change after it is loaded (its bounded cache aside) and is safe for concurrent use.
//
// It does not render chat templates: packages masks and jinja do.
package tokenizer
