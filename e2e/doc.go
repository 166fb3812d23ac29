// Package e2e holds the end-to-end tests: whole command lines, and processes that are killed, interrupted and resumed. Each file shows one
// promise that the documents make; main_test.go holds what they share.
//
// It does not hold tests of one package alone, which stand in that package.
package e2e
