// Package policy ties a model's files to what is computed with them: it loads weights into the C++ model, with the
// tokenizer, the chat template and the ids that end a turn, and saves the trained model as a Hugging Face folder that
// transformers and vLLM load.
//
// Loading and saving touch the model's parameters one at a time; a Policy must not be trained while it is saved.
// Without the build tag torch, [LoadText] works and [Load] returns cgo.ErrUnavailable.
//
// It does not update parameters (package trainer does), sample (the engines do) or know the formats of the files (package
// modelfile does).
package policy
