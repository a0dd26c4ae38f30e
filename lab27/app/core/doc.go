// Package core runs the reference app's C core (lab27.h) from Go: the same code that an iPhone runs, on a simulated one. The wrapper is
// behind the cgo build tag; without a C compiler this package is empty.
//
// The C files stand here rather than in a directory of their own because the go command only notices changes to those beside the Go
// files. cgo_platform.c belongs to the wrapper, everything named lab27*.c to the app.
package core
