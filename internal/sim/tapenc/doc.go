// Package tapenc is the device's side of the activity trace tap: what a scene.Device emits becomes row-stream payloads, in the form
// and argument set of its iOS version, as the encoder in the phone would write them (spec/wire.md).
//
// It is a witness of its own: it shares no code with the product's decoder, and beside the payloads it tells the truth, one JSON
// line for each frame that went into them.
//
// FrameUpdate comes in all eight variants of its format string, in turn.
package tapenc
