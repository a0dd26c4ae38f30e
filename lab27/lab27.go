// Package lab27 is the host's side of the reference app Lab27: its requests, the log bundle it writes, the bundle's validation, the match
// against FrameLifetime in both directions, the verdict on that match, and the verdict on what the reference costs. It is pure: files
// come as an fs.FS, times as arguments. The contract is lab27.md; app/core holds the writer of the bundles.
//
// Where the contract is silent or needed one more word:
//
//   - A scaled rehearsal says its factor in the request's durationPermille (10 to 999, or 1000). Only the phases' lengths are scaled: an
//     80 ms delay scaled by ten would be shorter than a refresh, and the case would never happen. Any purpose but formal may be scaled.
//   - presented.jsonl has one row for each submission, in order: `dropped` where the handler said 0, `missing` where none came back
//     within the second after the stop (those are the outstanding ones). A run with outstanding handlers is sealed partial.
//   - A delayed request that could not be committed before its phase ends is not made, so that phases keep their length.
//   - The length of a phase may be off by one interval of the rate asked for in it or in the phase before, whichever is longer: both of
//     its ends are beats of a display link.
//   - summary.json ends with `seal`, the SHA-256 of everything before that member, since nothing else covers that file.
//   - A bundle that contradicts itself is `invalid`, which is neither complete nor partial.
//   - The cuts lie half a 120 Hz refresh behind whole seconds of the window: see CutPhaseNs.
//   - Beyond the contract's list, a verdict is unqualified for an incomplete bundle, a reference window or a cut that does not exist, a
//     FrameLifetime without an end (it could lie in the window), times out of order, a session-gap (the session tells of one, or a frame's
//     quality does, and frames of the window may have been lost in it), another timebase than the session's, and a mediaTime that is
//     not the mach absolute time around it.
package lab27

// Meaning says what a match is worth; every report on one carries it.
const Meaning = "The render server hands the display driver's same timestamp to both sides, so agreement proves that nothing was lost, added, " +
	"shifted or misattributed between the driver and our number; it is not an optical measurement."

// Bounds of a bundle. The recipe makes at most 7,800 requests in 140 s, so 10,000 leaves a quarter spare.
const (
	MaxRequests    = 10_000
	MaxPresented   = 10_000
	MaxQueue       = 128             // handlers' reports that the app's main thread had not collected yet
	MaxBundleBytes = 2 * 1024 * 1024 // all files together
	MaxDrainNs     = 1_000_000_000   // from the stop to the last handler that counts
)

// Names of a bundle's files.
const (
	PlanFile      = "plan.json"
	EventsFile    = "events.jsonl"
	RequestsFile  = "requests.jsonl"
	PresentedFile = "presented.jsonl"
	SummaryFile   = "summary.json" // written last: it seals the others
)

// BundleFiles are the files of a whole bundle, in the order in which a pull should take them.
var BundleFiles = [...]string{PlanFile, EventsFile, RequestsFile, PresentedFile, SummaryFile}

// Where things stand on the phone, below the app's Documents, and how the app is told to stop.
const (
	PhonePending  = "lab27/pending"  // <nonce>.json; a name ending in .part is still being copied
	PhoneConsumed = "lab27/consumed" // <nonce>.json, moved here before the run starts
	PhoneRefused  = "lab27/refused"  // <unix ns>-<name>, and the reason beside it in <unix ns>-<name>.reason
	PhoneRuns     = "lab27/runs"     // <runName>/

	// CancelNotification is the Darwin notification that cancels a run; the phone's notification proxy posts it for the host.
	CancelNotification = "framebridge.lab27.cancel"
)
