//go:build !race

package lab27_test

const raceEnabled = false
