package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path"

	"github.com/google/uuid"

	"github.com/framebridge/framebridge/internal/remotexpc"
)

// The file service of iOS 17 and later. A RemoteXPC connection says what is wanted; each file comes on a connection of its own: 40 bytes of
// request, 40 bytes of header whose last four are the length, big-endian, then the file. go-ios speaks it too, but dials by itself and
// without deadlines.

const (
	fileControlService = "com.apple.coredevice.fileservice.control"
	fileDataService    = "com.apple.coredevice.fileservice.data"

	fileMagic       = "rwb!FILE"
	fileHeaderBytes = 40

	appDataDomain = 1 // of an app's data container
)

// FileService is an app's documents by the file service. It reads only.
type FileService struct {
	via     *rsdTransport
	who     string
	conn    net.Conn
	control *remotexpc.Conn
	session string
}

// OpenFileService opens an app's documents through the phone's tunnel.
func (p *Phone) OpenFileService(ctx context.Context, bundleID string) (*FileService, error) {
	via, ok := p.developer.(*rsdTransport)
	if !ok {
		return nil, problem(ServiceRefused, nil, "use AFC", "iOS %s has no file service: it comes with iOS %d", p.OSVersion, FirstTunnelRelease)
	}
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	conn, err := via.connect(ctx, fileControlService)
	if err != nil {
		return nil, err
	}
	s := &FileService{via: via, who: "file service of " + p.UDID, conn: conn}
	release := bound(ctx, conn)
	s.control, err = remotexpc.Dial(conn)
	release()
	if err != nil {
		conn.Close()
		return nil, lostOr(ctx, err, s.who)
	}
	answer, err := s.ask(ctx, map[string]any{"Cmd": "CreateSession", "Domain": uint64(appDataDomain), "Identifier": bundleID, "Session": "", "User": "mobile"})
	if s.session, ok = answer["NewSessionID"].(string); err == nil && !ok {
		err = problem(BadAnswer, nil, "", "the %s opens a session without its number", s.who)
	}
	var refused *fileServiceError
	if errors.As(err, &refused) {
		err = appMissing(p.UDID, bundleID, err)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the connection.
func (s *FileService) Close() error { return s.conn.Close() }

// fileServiceError is a refusal, in the service's words.
type fileServiceError struct{ words string }

func (e *fileServiceError) Error() string { return "the file service says: " + e.words }

// ask is one exchange, bounded by StepTimeout.
func (s *FileService) ask(ctx context.Context, request map[string]any) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	defer bound(ctx, s.conn)()
	if s.session != "" {
		request["SessionID"] = s.session
	}
	err := s.control.Send(request, remotexpc.FlagWantsReply)
	if err != nil {
		return nil, lostOr(ctx, err, s.who)
	}
	_, m, err := s.control.Receive()
	if err != nil {
		return nil, lostOr(ctx, err, s.who)
	}
	if refusal, is := m.Body["EncodedError"]; is && refusal != nil {
		words, _ := refusal.(map[string]any)
		text, ok := words["LocalizedDescription"].(string)
		if !ok {
			text = fmt.Sprint(refusal)
		}
		return nil, &fileServiceError{shorten(text)}
	}
	return m.Body, nil
}

// List implements Files.
func (s *FileService) List(ctx context.Context, dir string) ([]string, error) {
	answer, err := s.ask(ctx, map[string]any{"Cmd": "RetrieveDirectoryList", "MessageUUID": uuid.NewString(), "Path": path.Join(documentsRoot, dir)})
	if err != nil {
		return nil, fmt.Errorf("%s on the phone: %w", dir, err)
	}
	list, ok := answer["FileList"].([]any)
	if !ok && answer["FileList"] != nil {
		return nil, problem(BadAnswer, nil, "", "the %s lists %s as %T", s.who, dir, answer["FileList"])
	}
	names := make([]string, 0, len(list))
	for _, v := range list {
		name, ok := v.(string)
		if !ok {
			return nil, problem(BadAnswer, nil, "", "the %s lists %s with a %T in it", s.who, dir, v)
		}
		names = append(names, name)
	}
	return names, nil
}

// Copy implements Files.
func (s *FileService) Copy(ctx context.Context, w io.Writer, name string, atMost int64) (int64, error) {
	answer, err := s.ask(ctx, map[string]any{"Cmd": "RetrieveFile", "Path": path.Join(documentsRoot, name)})
	if err != nil {
		return 0, fmt.Errorf("%s on the phone: %w", name, err)
	}
	token, ok1 := answer["Response"].(uint64)
	file, ok2 := answer["NewFileID"].(uint64)
	if !ok1 || !ok2 {
		return 0, problem(BadAnswer, nil, "", "the %s offers %s without a token and a number", s.who, name)
	}
	conn, size, err := s.fetch(ctx, token, file)
	if err != nil {
		return 0, fmt.Errorf("%s on the phone: %w", name, err)
	}
	defer conn.Close()
	if int64(size) > atMost {
		return 0, tooLong(name, uint64(size), atMost)
	}
	for left := int64(size); left > 0; {
		n, err := s.piece(ctx, w, conn, min(left, copyChunk))
		left -= n
		if err != nil {
			return int64(size) - left, fmt.Errorf("%s on the phone: %w", name, err)
		}
	}
	return int64(size), nil
}

// fetch opens the connection on which a file comes, up to its first byte.
func (s *FileService) fetch(ctx context.Context, token, file uint64) (_ net.Conn, size uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	conn, err := s.via.connect(ctx, fileDataService)
	if err != nil {
		return nil, 0, err
	}
	defer bound(ctx, conn)()
	be := binary.BigEndian
	var head [fileHeaderBytes]byte
	copy(head[:], fileMagic)
	be.PutUint64(head[8:], token)
	be.PutUint64(head[24:], file)
	if _, err = conn.Write(head[:]); err == nil {
		_, err = io.ReadFull(conn, head[:])
	}
	if err == nil && string(head[:8]) != fileMagic {
		err = fmt.Errorf("expected %s, found %q", fileMagic, head[:8])
	}
	if err != nil {
		conn.Close()
		return nil, 0, lostOr(ctx, err, s.who)
	}
	return conn, be.Uint32(head[fileHeaderBytes-4:]), nil
}

// piece copies n bytes of a file, bounded by StepTimeout.
func (s *FileService) piece(ctx context.Context, w io.Writer, conn net.Conn, n int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	defer bound(ctx, conn)()
	b := make([]byte, n)
	got, err := io.ReadFull(conn, b)
	if err != nil {
		err = lostOr(ctx, err, s.who)
	}
	_, writeErr := w.Write(b[:got])
	return int64(got), errors.Join(err, writeErr)
}
