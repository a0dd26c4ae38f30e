package device

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path"
)

// AFC, Apple's file protocol: a packet is five little-endian u64 (magic, length of all, length up to the data, number, operation), then
// arguments and data. go-ios has a client too, on the same connection; it cannot rename, and it allocates whatever a header claims.

const houseArrestService = "com.apple.mobile.house_arrest"

const (
	afcMagic       = "CFA6LPAA"
	afcHeaderBytes = 40
)

// Operations.
const (
	afcStatus  = 0x01
	afcData    = 0x02
	afcReadDir = 0x03
	afcMakeDir = 0x09
	afcOpen    = 0x0d
	afcOpened  = 0x0e
	afcRead    = 0x0f
	afcWrite   = 0x10
	afcClose   = 0x14
	afcRename  = 0x18
)

// What a file is opened for.
const (
	afcForReading = 1
	afcForWriting = 3 // made, or emptied
)

const (
	// maxAFCArguments bounds what stands before the data of an answer: a status or a handle, 8 bytes.
	maxAFCArguments = 1 << 10
	// maxAFCData bounds the data of an answer: a piece of a file, or the names in a directory.
	maxAFCData = 1 << 20
)

// afcError is a status other than success.
type afcError uint64

func (e afcError) Error() string { return fmt.Sprintf("AFC status %d", uint64(e)) }

func (e afcError) Is(target error) bool {
	return e == 8 && target == fs.ErrNotExist || e == 16 && target == fs.ErrExist || e == 10 && target == fs.ErrPermission
}

// appendAFC appends a packet.
func appendAFC(b []byte, number, operation uint64, arguments, data []byte) []byte {
	own := uint64(afcHeaderBytes + len(arguments))
	b = append(b, afcMagic...)
	for _, v := range []uint64{own + uint64(len(data)), own, number, operation} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(append(b, arguments...), data...)
}

// readAFC reads the answer to packet number. A status of failure is an afcError.
func readAFC(r io.Reader, number uint64) (operation uint64, arguments, data []byte, err error) {
	var head [afcHeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, nil, err
	}
	le := binary.LittleEndian
	all, own, answers, operation := le.Uint64(head[8:]), le.Uint64(head[16:]), le.Uint64(head[24:]), le.Uint64(head[32:])
	switch {
	case string(head[:8]) != afcMagic:
		return 0, nil, nil, fmt.Errorf("AFC: expected %s, found %q", afcMagic, head[:8])
	case own < afcHeaderBytes || own > afcHeaderBytes+maxAFCArguments || all < own || all-own > maxAFCData:
		return 0, nil, nil, fmt.Errorf("AFC: an answer of %d bytes, %d of them before the data: expected up to %d and %d", all, own, maxAFCData, maxAFCArguments)
	case answers != number:
		return 0, nil, nil, fmt.Errorf("AFC: expected the answer to packet %d, found one to %d", number, answers)
	}
	body := make([]byte, all-afcHeaderBytes)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, nil, err
	}
	arguments, data = body[:own-afcHeaderBytes], body[own-afcHeaderBytes:]
	if operation != afcStatus {
		return operation, arguments, data, nil
	}
	if len(arguments) < 8 {
		return 0, nil, nil, fmt.Errorf("AFC: a status of %d bytes, expected 8", len(arguments))
	}
	if status := le.Uint64(arguments); status != 0 {
		return 0, nil, nil, afcError(status)
	}
	return operation, arguments, data, nil
}

// Documents are an app's documents by AFC.
type Documents struct {
	who    string
	conn   net.Conn
	number uint64 // of the last packet
}

// OpenDocuments opens an app's documents.
func (p *Phone) OpenDocuments(ctx context.Context, bundleID string) (*Documents, error) {
	conn, err := p.Connect(ctx, houseArrestService)
	if err != nil {
		return nil, err
	}
	d := &Documents{who: "house_arrest of " + p.UDID, conn: conn}
	if err := d.vend(ctx, p.UDID, bundleID); err != nil {
		conn.Close()
		return nil, err
	}
	return d, nil
}

// vend asks for the documents; what follows on the connection is AFC.
func (d *Documents) vend(ctx context.Context, udid, bundleID string) error {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	defer bound(ctx, d.conn)()
	var answer map[string]any
	if err := askPlist(d.conn, map[string]any{"Command": "VendDocuments", "Identifier": bundleID}, &answer); err != nil {
		return lostOr(ctx, err, d.who)
	}
	if word, ok := answer["Error"]; ok || answer["Status"] != "Complete" {
		return appMissing(udid, bundleID, fmt.Errorf("house_arrest says %v", word))
	}
	return nil
}

// Close ends the connection.
func (d *Documents) Close() error { return d.conn.Close() }

// ask is one exchange, bounded by StepTimeout. One that fails in any other way than by the phone's word is the connection's last: what
// comes on it later would be taken for another's answer.
func (d *Documents) ask(ctx context.Context, operation uint64, arguments, data []byte) (answer uint64, back, content []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	defer bound(ctx, d.conn)()
	d.number++
	if _, err = d.conn.Write(appendAFC(nil, d.number, operation, arguments, data)); err == nil {
		answer, back, content, err = readAFC(d.conn, d.number)
	}
	var refused afcError
	if err != nil && !errors.As(err, &refused) {
		err = lostOr(ctx, err, d.who)
		d.conn.Close()
	}
	return answer, back, content, err
}

// onPath is an operation on a path, wherever it leads.
func (d *Documents) onPath(ctx context.Context, operation uint64, name string) (data []byte, err error) {
	_, _, data, err = d.ask(ctx, operation, afcPath(name), nil)
	if err != nil {
		return nil, fmt.Errorf("%s on the phone: %w", name, err)
	}
	return data, nil
}

func afcPath(name string) []byte { return append([]byte("/"+path.Join(documentsRoot, name)), 0) }

// List implements Files.
func (d *Documents) List(ctx context.Context, dir string) ([]string, error) {
	data, err := d.onPath(ctx, afcReadDir, dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(data, []byte{0}) {
		if len(name) > 0 && string(name) != "." && string(name) != ".." {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// open opens a file and gives its handle as an argument.
func (d *Documents) open(ctx context.Context, name string, mode uint64) ([]byte, error) {
	operation, handle, _, err := d.ask(ctx, afcOpen, append(binary.LittleEndian.AppendUint64(nil, mode), afcPath(name)...), nil)
	if err == nil && (operation != afcOpened || len(handle) < 8) {
		err = problem(BadAnswer, nil, "", "the %s opens %s without a handle", d.who, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s on the phone: %w", name, err)
	}
	return handle[:8:8], nil
}

func (d *Documents) close(ctx context.Context, handle []byte) error {
	_, _, _, err := d.ask(ctx, afcClose, handle, nil)
	return err
}

// Copy implements Files.
func (d *Documents) Copy(ctx context.Context, w io.Writer, name string, atMost int64) (n int64, err error) {
	handle, err := d.open(ctx, name, afcForReading)
	if err != nil {
		return 0, err
	}
	defer func() {
		if closing := d.close(ctx, handle); err == nil {
			err = closing
		}
	}()
	for {
		operation, _, data, err := d.ask(ctx, afcRead, binary.LittleEndian.AppendUint64(handle, copyChunk), nil)
		if err != nil {
			return n, fmt.Errorf("%s on the phone: %w", name, err)
		}
		if operation != afcData || len(data) > copyChunk {
			return n, problem(BadAnswer, nil, "", "the %s answers a read of %d bytes with operation %d and %d bytes", d.who, copyChunk, operation, len(data))
		}
		if len(data) == 0 {
			return n, nil
		}
		if n+int64(len(data)) > atMost {
			return n, tooLong(name, uint64(n)+uint64(len(data)), atMost)
		}
		if _, err := w.Write(data); err != nil {
			return n, err
		}
		n += int64(len(data))
	}
}

// MakeDir makes a directory in one that exists; it may be there already.
func (d *Documents) MakeDir(ctx context.Context, name string) error {
	if _, err := d.onPath(ctx, afcMakeDir, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Put writes a file, which gets its name only when all of it is there: until then the name ends in .part.
func (d *Documents) Put(ctx context.Context, name string, content []byte) error {
	unfinished := name + ".part"
	handle, err := d.open(ctx, unfinished, afcForWriting)
	if err != nil {
		return err
	}
	_, _, _, err = d.ask(ctx, afcWrite, handle, content)
	if closing := d.close(ctx, handle); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("%s on the phone: %w", unfinished, err)
	}
	return d.Rename(ctx, unfinished, name)
}

// Rename gives a file another name.
func (d *Documents) Rename(ctx context.Context, from, to string) error {
	if _, _, _, err := d.ask(ctx, afcRename, append(afcPath(from), afcPath(to)...), nil); err != nil {
		return fmt.Errorf("%s on the phone, to be called %s: %w", from, to, err)
	}
	return nil
}
