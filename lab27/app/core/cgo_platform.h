/* The platform of the Go wrapper: each function calls the Go function exported for it. No part of the app. */
#ifndef CGO_PLATFORM_H
#define CGO_PLATFORM_H

#include "lab27.h"

/* handle is a runtime/cgo.Handle of the Go side. */
lab27_core *lab27_init_for_go(void *memory, uintptr_t handle, const lab27_app *app);

#endif
