// Package ledger keeps what was measured: session directories with their event logs, and the attempt ledger that names them.
//
// | file | decides |
// |---|---|
// | event.go, line.go | what an event is, and its one line of JSON |
// | reader.go, wire.go | how a log and a wire file are read, damaged ones too |
// | session.go | how a session is recorded: lock, lines, when they reach the disk |
// | seal.go, manifest.go | how it ends, is recovered after a kill, and is verified |
// | root.go | where things are kept and how they are called |
// | disk.go, lock.go | the file operations underneath, and what their errors mean |
//
// There are no clocks and no goroutines here: time is an argument, and Session.Sync may be called from a goroutine of the caller's.
//
// Choices where the contract (ledger.md) is silent:
//
//   - The lock of a directory is flock on a file named lock in it. While a session is recorded that file also holds 64 KiB of the disk,
//     which are given back before sealing, so that a session whose disk is full can still be closed. It is removed with the sealing.
//   - Torn bytes at the end of a killed session's log are moved to events.torn, since session.end has to follow the last whole line;
//     those at the end of wire.bin stay in place. The manifest gives both offsets and the hashes of all.
//   - session.end of a recovered session carries the hostNs of the line before: nobody read the dead process's clock at its end.
//   - The only thing ever removed is what another file was proved to hold: events.jsonl after events.jsonl.zst was read back and
//     hashed, and files that were never finished.
package ledger
