// Package core runs the reference app's C core (lab27.h) from Go: the same code that an iPhone runs, on a simulated one. The wrapper is
// behind the cgo build tag; without a C compiler this package is empty.
//
// A Platform is the phone: New starts the app on it, Poll has it look for a request, and while it runs each beat of the display link is a
// Tick, in which the core calls Present for a new submission. Whoever plays the panel calls Presented for it when it was shown. After a
// stop ticks go on until the bundle is sealed.
//
// The C files stand here rather than in a directory of their own because the go command only notices changes to those beside the Go
// files. cgo_platform.c belongs to the wrapper, everything named lab27*.c to the app.
package core
