//go:build cgo

package core

// #include <stdbool.h>
// #include <stddef.h>
// #include <stdint.h>
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// The functions below are what cgo_platform.c calls. They decide nothing.

func appOf(handle C.uintptr_t) *App { return cgo.Handle(handle).Value().(*App) }

//export lab27GoMachAbsolute
func lab27GoMachAbsolute(h C.uintptr_t) C.uint64_t {
	return C.uint64_t(appOf(h).platform.MachAbsolute())
}

//export lab27GoMachContinuous
func lab27GoMachContinuous(h C.uintptr_t) C.uint64_t {
	return C.uint64_t(appOf(h).platform.MachContinuous())
}

//export lab27GoMediaSeconds
func lab27GoMediaSeconds(h C.uintptr_t) C.double { return C.double(appOf(h).platform.MediaSeconds()) }

//export lab27GoWallUnixNs
func lab27GoWallUnixNs(h C.uintptr_t) C.int64_t { return C.int64_t(appOf(h).platform.WallUnixNs()) }

//export lab27GoAvailable
func lab27GoAvailable(h C.uintptr_t) C.uint {
	a := appOf(h).platform.Available()
	bits := C.uint(0)
	for i, on := range []bool{a.Foreground, a.Canvas, a.MetalDevice, a.MetalQueue, a.OtherWorkload} { // in the order of lab27.h
		if on {
			bits |= 1 << i
		}
	}
	return bits
}

//export lab27GoThermalState
func lab27GoThermalState(h C.uintptr_t) C.int { return C.int(appOf(h).platform.ThermalState()) }

//export lab27GoUsage
func lab27GoUsage(h C.uintptr_t, cpuNs, footprint *C.uint64_t) C.bool {
	cpu, bytes, ok := appOf(h).platform.Usage()
	*cpuNs, *footprint = C.uint64_t(cpu), C.uint64_t(bytes)
	return C.bool(ok)
}

//export lab27GoSetRate
func lab27GoSetRate(h C.uintptr_t, hz C.uint32_t) { appOf(h).platform.SetRate(int(hz)) }

//export lab27GoPresent
func lab27GoPresent(h C.uintptr_t, n, phase C.uint32_t, reference C.bool, drawableID *C.uint64_t) C.bool {
	a := appOf(h)
	id, ok := a.platform.Present(int(n), a.phases[phase], bool(reference))
	*drawableID = C.uint64_t(id)
	return C.bool(ok)
}

//export lab27GoDelay
func lab27GoDelay(h C.uintptr_t, ms C.uint32_t) { appOf(h).platform.DelayMain(int(ms)) }

//export lab27GoRelease
func lab27GoRelease(h C.uintptr_t) C.bool { return C.bool(appOf(h).platform.ReleaseWorkload()) }

//export lab27GoList
func lab27GoList(h C.uintptr_t, directory *C.char) C.int {
	a := appOf(h)
	names, err := a.platform.List(C.GoString(directory))
	if err != nil {
		return -1
	}
	a.listed = names
	return C.int(len(names))
}

//export lab27GoListed
func lab27GoListed(h C.uintptr_t, i C.int, to *C.char, size C.size_t) C.bool {
	name := appOf(h).listed[i]
	if len(name) >= int(size) {
		return false
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), size)
	b[copy(b, name)] = 0
	return true
}

//export lab27GoExists
func lab27GoExists(h C.uintptr_t, path *C.char) C.int {
	switch exists, err := appOf(h).platform.Exists(C.GoString(path)); {
	case err != nil:
		return -1
	case exists:
		return 1
	}
	return 0
}

//export lab27GoRead
func lab27GoRead(h C.uintptr_t, path, to *C.char, size C.size_t) C.int64_t {
	data, err := appOf(h).platform.Read(C.GoString(path), int(size))
	if err != nil || len(data) > int(size) {
		return -1
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(to)), size), data)
	return C.int64_t(len(data))
}

//export lab27GoMakeDirectory
func lab27GoMakeDirectory(h C.uintptr_t, path *C.char) C.bool {
	return appOf(h).platform.MakeDirectory(C.GoString(path)) == nil
}

//export lab27GoMove
func lab27GoMove(h C.uintptr_t, from, to *C.char) C.bool {
	return appOf(h).platform.Move(C.GoString(from), C.GoString(to)) == nil
}

//export lab27GoCreate
func lab27GoCreate(h C.uintptr_t, path *C.char) C.bool {
	a := appOf(h)
	output, err := a.platform.Create(C.GoString(path))
	if err != nil {
		return false
	}
	a.output = output
	return true
}

//export lab27GoWrite
func lab27GoWrite(h C.uintptr_t, data *C.char, length C.size_t) C.bool {
	_, err := appOf(h).output.Write(unsafe.Slice((*byte)(unsafe.Pointer(data)), length))
	return err == nil
}

//export lab27GoClose
func lab27GoClose(h C.uintptr_t) C.bool {
	a := appOf(h)
	output := a.output
	a.output = nil
	return output.Close() == nil
}
