// Package bench holds the Go side of scripts/bench_engine.sh, and the tests of the scripts that refuse a figure of a machine which had other
// work. The figures of one package alone are benchmarks in that package.
package bench
