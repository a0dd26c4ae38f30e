//go:build !cgo

package sim

// HasLab27 reports whether phones can carry the reference app.
const HasLab27 = false

func newReferenceApp(*Device) (referenceApp, error) { return nil, errNoLab27 }
