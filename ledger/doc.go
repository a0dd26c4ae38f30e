// Package ledger keeps what was measured: session directories with their event logs, and the attempt ledger that names them.
//
// | file | decides |
// |---|---|
// | event.go, line.go | what an event is, and its one line of JSON |
// | reader.go | how a log is read, a damaged one too |
// | session.go | how a session is recorded: lock, lines, when they reach the disk |
// | seal.go, manifest.go | how it ends, is recovered after a kill, and is verified |
// | entry.go, checkpoint.go, tree.go | what an entry of the attempt ledger is, what is signed, and what is hashed |
// | writer.go, entries.go | how entries are appended and read |
// | verify.go, findings.go, proof.go | what of it can be proved, to whom |
// | root.go | where things are kept and how they are called |
// | disk.go, lock.go | the file operations underneath, and what their errors mean |
//
// There are no clocks here: time is an argument. There are no goroutines but the jobs of Verify, which end with it; Session.Sync may be
// called from a goroutine of the caller's.
//
// Choices where the contract (ledger.md) is silent:
//
//   - The lock of a directory is flock on a file named lock in it. While a session is recorded that file also holds 64 KiB of the disk,
//     which are given back before sealing, so that a session whose disk is full can still be closed. It is removed with the sealing.
//   - Torn bytes at the end of a killed session's log are moved to events.torn, since session.end has to follow the last whole line;
//     those at the end of wire.bin stay in place. The manifest gives both offsets and the hashes of all.
//   - session.end of a recovered session carries the hostNs of the line before: nobody read the dead process's clock at its end.
//   - The only things ever removed are one form of the log where the other was proved to hold it (events.jsonl after events.jsonl.zst was
//     read back, or events.jsonl.zst of a sealing that was killed before its manifest), files that were never finished, and the lock.
//   - A session is files and directories. Links, pipes and devices are not sealed, not read, and found by a verification: what they lead
//     to has no hash.
//   - A file system that keeps the mode of a file as it is does not fail a sealing: read-only is against mistakes, the hashes are what
//     protects.
//   - Entries are numbered from 0, as the leaves of the tree are; entry 0 is ledger.open and names the public key. A leaf hashes the
//     entry's line without its newline. The file checkpoints is one signed note behind the other, and line 1 and the key's name are
//     framebridge/ledger in every ledger: which one it is, the key tells.
//   - A session that was recorded outside of an attempt is a round.session whose attempt is null.
//   - An append makes the entry durable, then the hashes, then the checkpoint. A whole entry without the others is finished by the next
//     writer, and so signed: one entry can be put there by whoever can write to the file, as he could have by the tool. More than one, or
//     anything else that a kill or a loss of power does not leave, is refused.
//   - Entries that were cut off together with their hashes and checkpoints cannot be missed by anybody who has nothing but the directory.
//     That takes a checkpoint kept elsewhere: verify --against.
package ledger
