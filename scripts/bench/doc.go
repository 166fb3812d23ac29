// Package bench holds the Go side of scripts/bench_engine.sh, and the tests of the scripts that refuse a figure of a machine which had other
// work.
//
// It does not hold the benchmarks of one package alone, which stand in that package.
package bench
