package main

import "github.com/framebridge/framebridge/ledger"

// version is this program's, as sessions and reports name it.
const version = "0.1.0"

var tool = ledger.Tool{Name: "framebridge", Version: version}
