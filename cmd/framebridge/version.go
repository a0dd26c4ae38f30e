package main

import "github.com/framebridge/framebridge/ledger"

// version is this program's, as sessions and reports name it.
const version = "0.1.0"

// sourceDigest is the SHA-256 of the source that this program was built from, set by scripts/build; "" where nobody said.
var sourceDigest string

var tool = ledger.Tool{Name: "framebridge", Version: version}
