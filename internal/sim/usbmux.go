package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"howett.net/plist"
)

// usbmuxd's protocol: a 16-byte little-endian header (length with itself, version, message, tag), then a property list.
const (
	muxHeaderBytes   = 16
	muxPlistVersion  = 1
	muxMessageResult = 1
	muxMessagePlist  = 8
)

// Result numbers. The records' calls answer with errno values instead.
const (
	muxOK          = 0
	muxBadCommand  = 1
	muxBadDevice   = 2
	muxConnRefused = 3
	muxBadVersion  = 6

	muxNoRecord      = 2  // ENOENT
	muxInvalidRecord = 22 // EINVAL
)

// muxEventQueue bounds what waits for a listener that does not read; one that is further behind is cut off.
const muxEventQueue = 256

type muxMessage struct {
	version, kind, tag uint32
	body               map[string]any // nil unless kind is muxMessagePlist
}

var errMuxLength = errors.New("usbmux message length out of bounds")

func readMux(r io.Reader) (muxMessage, error) {
	var head [muxHeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return muxMessage{}, err
	}
	le := binary.LittleEndian
	n := le.Uint32(head[:])
	if n < muxHeaderBytes || n > maxPlistBytes {
		return muxMessage{}, fmt.Errorf("%w: %d, expected %d to %d", errMuxLength, n, muxHeaderBytes, maxPlistBytes)
	}
	m := muxMessage{version: le.Uint32(head[4:]), kind: le.Uint32(head[8:]), tag: le.Uint32(head[12:])}
	body := make([]byte, n-muxHeaderBytes)
	if _, err := io.ReadFull(r, body); err != nil {
		return muxMessage{}, noEOF(err)
	}
	if m.kind != muxMessagePlist {
		return m, nil
	}
	var err error
	m.body, err = parsePlist(body)
	return m, err
}

func writeMux(w io.Writer, tag uint32, msg map[string]any) error {
	body, err := plist.Marshal(msg, plist.XMLFormat)
	if err != nil {
		return err
	}
	out := make([]byte, 0, muxHeaderBytes+len(body))
	for _, v := range []uint32{uint32(muxHeaderBytes + len(body)), muxPlistVersion, muxMessagePlist, tag} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	_, err = w.Write(append(out, body...))
	return err
}

func muxResult(number int) map[string]any {
	return map[string]any{"MessageType": "Result", "Number": uint64(number)}
}

// muxClient is a program that talks to the lab's usbmuxd.
type muxClient struct {
	conn    net.Conn
	program map[string]any      // what it said of itself, for ListListeners
	events  chan map[string]any // attach and detach messages, for one that listens
}

// serveUsbmux talks to one client until it leaves, or hands its connection to a device.
func (l *Lab) serveUsbmux(conn net.Conn) error {
	c := &muxClient{conn: conn}
	for {
		m, err := readMux(conn)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if m.version != muxPlistVersion || m.kind != muxMessagePlist {
			return refuseBinary(conn, m.tag)
		}
		switch str(m.body, "MessageType") {
		case "Connect":
			device, port := l.muxTarget(m.body)
			if device == nil {
				err = writeMux(conn, m.tag, muxResult(muxBadDevice))
				break
			}
			open, refusal := device.open(port)
			if refusal != nil {
				l.log.Debug().Str("udid", device.UDID).Uint16("port", port).Err(refusal).Msg("connection refused")
				err = writeMux(conn, m.tag, muxResult(muxConnRefused))
				break
			}
			if err := writeMux(conn, m.tag, muxResult(muxOK)); err != nil {
				return err
			}
			return device.connect(conn, nil, open)
		case "Listen":
			return l.muxListen(c, m)
		default:
			err = writeMux(conn, m.tag, l.muxAnswer(m.body))
		}
		if err != nil {
			return err
		}
	}
}

// refuseBinary tells a client of the old binary protocol to speak property lists, in its own protocol.
func refuseBinary(conn net.Conn, tag uint32) error {
	var out []byte
	for _, v := range []uint32{muxHeaderBytes + 4, 0, muxMessageResult, tag, muxBadVersion} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	_, err := conn.Write(out)
	return err
}

// muxTarget finds the device and port of a Connect; the port comes in network order, whatever the host's is.
func (l *Lab) muxTarget(body map[string]any) (*Device, uint16) {
	id, _ := number(body, "DeviceID")
	port, _ := number(body, "PortNumber")
	return l.deviceByMuxID(id), uint16(port)<<8 | uint16(port)>>8
}

func (l *Lab) muxAnswer(body map[string]any) map[string]any {
	record := str(body, "PairRecordID")
	switch str(body, "MessageType") {
	case "ListDevices":
		list := []any{}
		for _, d := range l.attached() {
			list = append(list, d)
		}
		return map[string]any{"DeviceList": list}
	case "ListListeners":
		return map[string]any{"ListenerList": l.listenerList()}
	case "ReadBUID":
		return map[string]any{"BUID": l.ids.systemBUID}
	case "ReadPairRecord":
		if file := l.pairRecord(record); file != nil {
			return map[string]any{"PairRecordData": file}
		}
		return muxResult(muxNoRecord)
	case "SavePairRecord":
		data, _ := body["PairRecordData"].([]byte)
		if record == "" || len(data) == 0 || l.device(record) == nil {
			return muxResult(muxInvalidRecord)
		}
		l.savePairRecord(record, data)
		return muxResult(muxOK)
	case "DeletePairRecord":
		if l.pairRecord(record) == nil {
			return muxResult(muxNoRecord)
		}
		l.savePairRecord(record, nil)
		return muxResult(muxOK)
	}
	return muxResult(muxBadCommand)
}

// muxListen sends attach and detach messages until the client leaves. Like the real daemon it accepts no other command from then on.
func (l *Lab) muxListen(c *muxClient, m muxMessage) error {
	c.program = m.body
	c.events = make(chan map[string]any, muxEventQueue)
	if err := writeMux(c.conn, m.tag, muxResult(muxOK)); err != nil {
		return err
	}
	l.addListener(c)
	defer l.removeListener(c)
	gone := make(chan error, 1)
	go func() {
		_, err := readMux(c.conn)
		gone <- err
	}()
	for {
		select {
		case event, open := <-c.events:
			if !open {
				c.conn.Close()
				<-gone
				return errors.New("a listener does not read")
			}
			if err := writeMux(c.conn, 0, event); err != nil {
				c.conn.Close()
				<-gone
				return err
			}
		case err := <-gone:
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// appleUSBProduct is the USB product id that iPhones have had for years.
const appleUSBProduct = 0x12a8

// muxEntry describes an attached device, in ListDevices and in Attached messages alike. Its lock is held.
func muxEntry(d *Device, id uint64) map[string]any {
	by := "USB"
	if d.state.WiFi {
		by = "Network"
	}
	return map[string]any{"MessageType": "Attached", "DeviceID": id, "Properties": map[string]any{
		"ConnectionSpeed": uint64(480_000_000), "ConnectionType": by, "DeviceID": id, "LocationID": id << 16,
		"ProductID": uint64(appleUSBProduct), "SerialNumber": d.UDID, "UDID": d.UDID, "USBSerialNumber": d.UDID}}
}
