//go:build race

package lab27_test

const raceEnabled = true
