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
	"strings"

	"github.com/google/uuid"

	"github.com/framebridge/framebridge/internal/remotexpc"
)

// The file service of iOS 17 and later: RemoteXPC says what is wanted, a file comes on a connection of its own.
const (
	fileControlName = "com.apple.coredevice.fileservice.control"
	fileDataName    = "com.apple.coredevice.fileservice.data"
)

// Domains of files.
const fileDomainApp = 1 // an app's data container

// A request for a file, and the header before it: magic, token, zeros, number of the file, its size, each big-endian u64.
const (
	fileMagic       = "rwb!FILE"
	fileHeaderBytes = 40
)

const (
	// maxTransfers bounds the files that were asked for and have not been fetched; the oldest is forgotten.
	maxTransfers = 64
	// maxPulled bounds a file: what go-ios takes at most.
	maxPulled = 1 << 30
)

// transfer is a file that a client may fetch, once.
type transfer struct {
	token uint64
	dir   string // an app's data
	name  string // in it
}

// fileSession is a client's session on an app's files.
type fileSession struct {
	d   *Device
	id  string
	dir string // "" before there is a session
}

func serveFileControl(ctx context.Context, d *Device, conn net.Conn) error {
	c, err := acceptXPC(conn)
	if err != nil {
		return fmt.Errorf("file service: %w", err)
	}
	s := &fileSession{d: d}
	for {
		m, err := c.receive()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("file service: %w", err)
		}
		if err := d.beforeAnswer(ctx, fileControlName); err != nil {
			return err
		}
		// Clients expect lists where they asked, and everything else on the other stream.
		stream := uint32(remotexpc.ServerClient)
		if str(m.Body, "Cmd") == "RetrieveDirectoryList" {
			stream = remotexpc.ClientServer
		}
		answer, err := s.answer(m.Body)
		if err != nil {
			answer = map[string]any{"EncodedError": map[string]any{"LocalizedDescription": err.Error()}}
		}
		if err := c.send(stream, answer); err != nil {
			return fmt.Errorf("file service: %w", err)
		}
	}
}

func (s *fileSession) answer(request map[string]any) (map[string]any, error) {
	command := str(request, "Cmd")
	if command == "CreateSession" {
		domain, _ := number(request, "Domain")
		if domain != fileDomainApp {
			return nil, fmt.Errorf("domain %d is not simulated, only %d, an app's data, is", domain, fileDomainApp)
		}
		var err error
		if s.dir, err = s.d.container(str(request, "Identifier")); err != nil {
			return nil, err
		}
		s.id = upperUUID()
		return map[string]any{"NewSessionID": s.id}, nil
	}
	if s.dir == "" || str(request, "SessionID") != s.id {
		return nil, errors.New("there is no such session")
	}
	name := strings.TrimPrefix(path.Clean("/"+str(request, "Path")), "/")
	if name == "" {
		name = "."
	}
	switch command {
	case "RetrieveDirectoryList":
		return listFiles(s.dir, name)
	case "RetrieveFile":
		return s.d.offer(s.dir, name)
	}
	return nil, fmt.Errorf("%q is not simulated", command)
}

func listFiles(dir, name string) (map[string]any, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), name)
	if err != nil {
		return nil, err
	}
	names := []any{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return map[string]any{"FileList": names}, nil
}

// offer makes a file one that may be fetched.
func (d *Device) offer(dir, name string) (map[string]any, error) {
	f, _, err := (transfer{dir: dir, name: name}).open()
	if err != nil {
		return nil, err
	}
	f.Close()
	random := uuid.New()
	token := binary.BigEndian.Uint64(random[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastFile++
	d.transfers[d.lastFile] = transfer{token, dir, name}
	delete(d.transfers, d.lastFile-maxTransfers)
	return map[string]any{"Response": token, "NewFileID": d.lastFile}, nil
}

// open opens the file and tells its size.
func (t transfer) open() (*os.File, int64, error) {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	f, err := root.Open(t.name)
	if err != nil {
		return nil, 0, err
	}
	i, err := f.Stat()
	switch {
	case err != nil:
	case !i.Mode().IsRegular():
		err = fmt.Errorf("%s is no file", t.name)
	case i.Size() > maxPulled:
		err = fmt.Errorf("%s has %d bytes, at most %d are sent", t.name, i.Size(), maxPulled)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, i.Size(), nil
}

// serveFileData sends the file that the client names.
func serveFileData(ctx context.Context, d *Device, conn net.Conn) error {
	var request [fileHeaderBytes]byte
	if _, err := io.ReadFull(conn, request[:]); err != nil {
		return noGoodbye(err)
	}
	be := binary.BigEndian
	token, id := be.Uint64(request[8:]), be.Uint64(request[24:])
	d.mu.Lock()
	t, known := d.transfers[id]
	if known = known && string(request[:8]) == fileMagic && t.token == token; known {
		delete(d.transfers, id)
	}
	d.mu.Unlock()
	if !known {
		return fmt.Errorf("file service: nobody was offered file %d", id)
	}
	if err := d.beforeAnswer(ctx, fileDataName); err != nil {
		return err
	}
	f, size, err := t.open()
	if err != nil {
		return fmt.Errorf("file service: %w", err)
	}
	defer f.Close()
	head := be.AppendUint64(request[:fileHeaderBytes-8:fileHeaderBytes-8], uint64(size))
	if _, err := conn.Write(head); err != nil {
		return err
	}
	_, err = io.CopyN(conn, f, size)
	return err
}
