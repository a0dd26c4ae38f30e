package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// AFC gives files: those of the camera and such by its own name, those of an app through house_arrest.
const (
	afcName         = "com.apple.afc"
	houseArrestName = "com.apple.mobile.house_arrest"
)

// An AFC packet: a header of five little-endian u64 (magic, length of all, length of header and arguments, number, operation), arguments, data.
const (
	afcMagic       = "CFA6LPAA"
	afcHeaderBytes = 40
)

// Operations.
const (
	afcStatus     = 0x01
	afcData       = 0x02
	afcReadDir    = 0x03
	afcRemove     = 0x08
	afcMakeDir    = 0x09
	afcFileInfo   = 0x0a
	afcDeviceInfo = 0x0b
	afcOpen       = 0x0d
	afcOpened     = 0x0e
	afcRead       = 0x0f
	afcWrite      = 0x10
	afcSeek       = 0x11
	afcTell       = 0x12
	afcTold       = 0x13
	afcClose      = 0x14
	afcSetSize    = 0x15
	afcRename     = 0x18
	afcRemoveAll  = 0x22
)

// Status numbers.
const (
	afcOK             = 0
	afcHeaderInvalid  = 2
	afcNoResources    = 3
	afcInvalidArg     = 7
	afcNotFound       = 8
	afcIsDir          = 9
	afcPermDenied     = 10
	afcTooMuch        = 13
	afcNotSupported   = 15
	afcExists         = 16
	afcNoSpace        = 18
	afcIOError        = 20
	afcDirNotEmpty    = 33
	afcArgumentsBytes = 8 // every argument that is a number
)

const (
	// maxAFCArguments bounds what precedes the data of a packet: two paths, or numbers.
	maxAFCArguments = 64 << 10
	// maxAFCRead bounds the answer to one read; clients ask again for more.
	maxAFCRead = 1 << 20
	// maxAFCFile bounds a file, so that a client cannot fill the disk with one write: as much as go-ios pulls at most.
	maxAFCFile = 1 << 30
	// maxAFCFiles bounds how many files a client has open.
	maxAFCFiles = 64
)

// afcSession is a client's view of a directory.
type afcSession struct {
	root  *os.Root
	only  string // the one directory in it that may be touched, "" for all
	files map[uint64]*os.File
	last  uint64 // handle
}

func serveAFC(ctx context.Context, d *Device, conn net.Conn) error {
	dir, err := d.media()
	if err != nil {
		return err
	}
	return talkAFC(ctx, d, afcName, conn, dir, "")
}

// serveHouseArrest opens an app's files for AFC on the same connection. Documents are all that VendDocuments gives.
func serveHouseArrest(ctx context.Context, d *Device, conn net.Conn) error {
	request, err := readPlist(conn)
	if err != nil {
		return noGoodbye(err)
	}
	if err := d.beforeAnswer(ctx, houseArrestName); err != nil {
		return err
	}
	only := ""
	switch str(request, "Command") {
	case "VendContainer":
	case "VendDocuments":
		only = documentsDir
	default:
		return writePlist(conn, refusal("UnknownCommand"))
	}
	dir, err := d.container(str(request, "Identifier"))
	if errors.Is(err, ErrNoApp) {
		return writePlist(conn, refusal("ApplicationLookupFailed"))
	}
	if err != nil {
		return err
	}
	if err := writePlist(conn, map[string]any{"Status": "Complete"}); err != nil {
		return err
	}
	return talkAFC(ctx, d, houseArrestName, conn, dir, only)
}

// noGoodbye makes an end between messages no error.
func noGoodbye(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

func talkAFC(ctx context.Context, d *Device, name string, conn net.Conn, dir, only string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	s := &afcSession{root: root, only: only, files: map[uint64]*os.File{}}
	defer s.close()
	for {
		p, err := readAFC(conn)
		if err != nil {
			return noGoodbye(err)
		}
		data := &io.LimitedReader{R: conn, N: p.data}
		answer := s.answer(p, data)
		if _, err := io.Copy(io.Discard, data); err != nil || data.N > 0 {
			return fmt.Errorf("AFC: %d bytes of data are missing: %w", data.N, noEOF(err))
		}
		if err := d.beforeAnswer(ctx, name); err != nil {
			return err
		}
		if _, err := conn.Write(answer.append(nil, p.number)); err != nil {
			return err
		}
	}
}

func (s *afcSession) close() {
	for _, f := range s.files {
		f.Close()
	}
	s.root.Close()
}

// afcPacket is a packet but for its data, of which there are as many bytes as data says.
type afcPacket struct {
	operation, number uint64
	arguments         []byte
	data              int64
}

func readAFC(r io.Reader) (p afcPacket, err error) {
	var head [afcHeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return p, err
	}
	if magic := string(head[:8]); magic != afcMagic {
		return p, fmt.Errorf("AFC: expected %s, found %q", afcMagic, magic)
	}
	le := binary.LittleEndian
	all, own := le.Uint64(head[8:]), le.Uint64(head[16:])
	if own < afcHeaderBytes || own > afcHeaderBytes+maxAFCArguments || all < own || all-own > maxAFCFile {
		return p, fmt.Errorf("AFC: a packet of %d bytes, %d of them before the data: expected up to %d and %d", all, own, maxAFCFile, maxAFCArguments)
	}
	p = afcPacket{number: le.Uint64(head[24:]), operation: le.Uint64(head[32:]), arguments: make([]byte, own-afcHeaderBytes), data: int64(all - own)}
	_, err = io.ReadFull(r, p.arguments)
	return p, noEOF(err)
}

// number is an argument that is a number.
func (p afcPacket) argument(i int) uint64 {
	if len(p.arguments) < (i+1)*afcArgumentsBytes {
		return 0 // no handle, and nothing to read
	}
	return binary.LittleEndian.Uint64(p.arguments[i*afcArgumentsBytes:])
}

// afcAnswer is an answer: a status, or whatever operation says.
type afcAnswer struct {
	operation uint64
	arguments []byte
	data      []byte
}

func (a afcAnswer) append(b []byte, number uint64) []byte {
	le := binary.LittleEndian
	own := uint64(afcHeaderBytes + len(a.arguments))
	b = append(b, afcMagic...)
	for _, v := range []uint64{own + uint64(len(a.data)), own, number, a.operation} {
		b = le.AppendUint64(b, v)
	}
	return append(append(b, a.arguments...), a.data...)
}

func afcNumber(operation, n uint64) afcAnswer {
	return afcAnswer{operation: operation, arguments: binary.LittleEndian.AppendUint64(nil, n)}
}

func afcResult(number uint64) afcAnswer { return afcNumber(afcStatus, number) }

// afcError is the status that tells of an error.
func afcError(err error) afcAnswer {
	n := uint64(afcIOError)
	for _, known := range []struct {
		err    error
		number uint64
	}{{nil, afcOK}, {syscall.ENOTEMPTY, afcDirNotEmpty}, {syscall.EISDIR, afcIsDir}, {syscall.ENOSPC, afcNoSpace}, {syscall.EINVAL, afcInvalidArg},
		{fs.ErrNotExist, afcNotFound}, {syscall.ENOTDIR, afcNotFound}, {fs.ErrExist, afcExists}, {fs.ErrPermission, afcPermDenied}} {
		if errors.Is(err, known.err) {
			n = known.number
			break
		}
	}
	return afcResult(n)
}

// afcStrings are texts, each with a NUL behind it.
func afcStrings(texts ...string) afcAnswer {
	var b []byte
	for _, s := range texts {
		b = append(append(b, s...), 0)
	}
	return afcAnswer{operation: afcData, data: b}
}

// path is a client's path as one inside root: the name that it has there, or fs.ErrPermission.
func (s *afcSession) path(text []byte) (string, error) {
	name, _, _ := strings.Cut(string(text), "\x00")
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if s.only != "" && name != s.only && !strings.HasPrefix(name, s.only+"/") {
		return "", fs.ErrPermission
	}
	if name == "" {
		name = "."
	}
	return name, nil
}

// answer does what a packet asks for; data are its data.
func (s *afcSession) answer(p afcPacket, data io.Reader) afcAnswer {
	switch p.operation {
	case afcReadDir, afcRemove, afcRemoveAll, afcMakeDir, afcFileInfo:
		name, err := s.path(p.arguments)
		if err != nil {
			return afcError(err)
		}
		return s.onPath(p.operation, name)
	case afcRename:
		from, to, _ := strings.Cut(string(p.arguments), "\x00")
		old, err := s.path([]byte(from))
		if err != nil {
			return afcError(err)
		}
		name, err := s.path([]byte(to))
		if err == nil {
			err = s.root.Rename(old, name)
		}
		return afcError(err)
	case afcDeviceInfo:
		return afcStrings("Model", "iPhone", "FSTotalBytes", "128000000000", "FSFreeBytes", "64000000000", "FSBlockSize", "4096")
	case afcOpen:
		return s.open(p)
	case afcRead, afcWrite, afcSeek, afcTell, afcSetSize, afcClose:
		f := s.files[p.argument(0)]
		if f == nil {
			return afcResult(afcInvalidArg)
		}
		return s.onFile(p, f, data)
	}
	return afcResult(afcNotSupported)
}

func (s *afcSession) onPath(operation uint64, name string) afcAnswer {
	switch operation {
	case afcReadDir:
		return s.list(name)
	case afcMakeDir:
		return afcError(s.root.MkdirAll(name, 0o700))
	case afcFileInfo:
		return s.info(name)
	}
	if name == "." || name == s.only {
		return afcResult(afcPermDenied)
	}
	if operation == afcRemove {
		return afcError(s.root.Remove(name))
	}
	if _, err := s.root.Lstat(name); err != nil {
		return afcError(err)
	}
	return afcError(s.root.RemoveAll(name))
}

func (s *afcSession) list(name string) afcAnswer {
	entries, err := fs.ReadDir(s.root.FS(), name)
	if err != nil {
		return afcError(err)
	}
	names := []string{".", ".."}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return afcStrings(names...)
}

func (s *afcSession) info(name string) afcAnswer {
	i, err := s.root.Lstat(name)
	if err != nil {
		return afcError(err)
	}
	kind := "S_IFREG"
	switch {
	case i.IsDir():
		kind = "S_IFDIR"
	case i.Mode()&fs.ModeSymlink != 0:
		kind = "S_IFLNK"
	}
	const block = 512
	mtime := strconv.FormatInt(i.ModTime().UnixNano(), 10)
	texts := []string{"st_size", strconv.FormatInt(i.Size(), 10), "st_blocks", strconv.FormatInt((i.Size()+block-1)/block, 10), "st_nlink", "1",
		"st_ifmt", kind, "st_mtime", mtime, "st_birthtime", mtime}
	if kind == "S_IFLNK" {
		if target, err := s.root.Readlink(name); err == nil {
			texts = append(texts, "LinkTarget", target)
		}
	}
	return afcStrings(texts...)
}

// openModes are those of fopen, 1 to 6: r, r+ (which makes the file), w, w+, a, a+.
var openModes = [...]int{
	1: os.O_RDONLY, 2: os.O_RDWR | os.O_CREATE, 3: os.O_WRONLY | os.O_CREATE | os.O_TRUNC, 4: os.O_RDWR | os.O_CREATE | os.O_TRUNC,
	5: os.O_WRONLY | os.O_CREATE | os.O_APPEND, 6: os.O_RDWR | os.O_CREATE | os.O_APPEND,
}

func (s *afcSession) open(p afcPacket) afcAnswer {
	mode := p.argument(0)
	if len(p.arguments) < afcArgumentsBytes || mode < 1 || mode >= uint64(len(openModes)) {
		return afcResult(afcInvalidArg)
	}
	if len(s.files) >= maxAFCFiles {
		return afcResult(afcNoResources)
	}
	name, err := s.path(p.arguments[afcArgumentsBytes:])
	if err != nil {
		return afcError(err)
	}
	if i, err := s.root.Stat(name); err == nil && i.IsDir() {
		return afcResult(afcIsDir)
	}
	f, err := s.root.OpenFile(name, openModes[mode], 0o600)
	if err != nil {
		return afcError(err)
	}
	s.last++
	s.files[s.last] = f
	return afcNumber(afcOpened, s.last)
}

func (s *afcSession) onFile(p afcPacket, f *os.File, data io.Reader) afcAnswer {
	switch p.operation {
	case afcRead:
		b := make([]byte, min(p.argument(1), maxAFCRead))
		n, err := f.Read(b)
		if err != nil && err != io.EOF {
			return afcError(err)
		}
		return afcAnswer{operation: afcData, data: b[:n]}
	case afcWrite:
		i, err := f.Stat()
		if err == nil && i.Size()+p.data > maxAFCFile {
			return afcResult(afcTooMuch)
		}
		if err == nil {
			_, err = io.Copy(f, data)
		}
		return afcError(err)
	case afcSeek:
		_, err := f.Seek(int64(p.argument(2)), int(p.argument(1)))
		return afcError(err)
	case afcTell:
		n, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return afcError(err)
		}
		return afcNumber(afcTold, uint64(n))
	case afcSetSize:
		if p.argument(1) > maxAFCFile {
			return afcResult(afcTooMuch)
		}
		return afcError(f.Truncate(int64(p.argument(1))))
	default: // afcClose
		delete(s.files, p.argument(0))
		return afcError(f.Close())
	}
}
