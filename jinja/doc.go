// Package jinja renders chat templates: the Jinja dialect of Hugging Face transformers, exactly.
//
// The reference is Python's jinja2 3.1 as transformers 5 configures it (utils/chat_template_utils.py): an
// ImmutableSandboxedEnvironment with trim_blocks and lstrip_blocks, loop controls, the generation tag, raise_exception,
// strftime_now, and tojson in insertion order without HTML escapes. A rendering equals Python's byte for byte: names are
// resolved by jinja2's own scope analysis (symbols.go is its idtracking.py), strings are indexed by code point, integers
// have any size, generators are consumed once, and methods shadow dictionary keys where Python's do.
//
// What cannot be rendered exactly is refused, never approximated: Compile names the construct and its line. What depends on
// the type of a value (a string method that is not implemented, the address in the repr of a function) fails the rendering.
//
// A Template is read-only after Compile and safe for concurrent use. Rendering is bounded in steps, output and recursion,
// so that a hostile template ends in an error.
//
// It does not know roles, special tokens or tokenizers: packages masks and masks/tokenizer do.
package jinja
