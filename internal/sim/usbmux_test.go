package sim

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"

	"github.com/rs/zerolog"
	"howett.net/plist"
)

func TestUsbmuxAnswersWithTheNumbersOfTheRealDaemon(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"))
	conn := dialMux(t)
	for _, c := range []struct {
		name string
		msg  map[string]any
		want uint64
	}{
		{"unknown command", map[string]any{"MessageType": "Dance"}, 1},
		{"no command", map[string]any{}, 1},
		{"connect to a device that is not there", map[string]any{"MessageType": "Connect", "DeviceID": 99, "PortNumber": 32498}, 2},
		{"connect to a port on which nothing listens", map[string]any{"MessageType": "Connect", "DeviceID": 1, "PortNumber": 1}, 3},
		{"read a record that is not there", map[string]any{"MessageType": "ReadPairRecord", "PairRecordID": "nobody"}, 2},
		{"delete a record that is not there", map[string]any{"MessageType": "DeletePairRecord", "PairRecordID": "nobody"}, 2},
		{"save a record without data", map[string]any{"MessageType": "SavePairRecord", "PairRecordID": udid15}, 22},
		{"save a record", map[string]any{"MessageType": "SavePairRecord", "PairRecordID": udid15, "PairRecordData": []byte("x")}, 0},
		{"delete it", map[string]any{"MessageType": "DeletePairRecord", "PairRecordID": udid15}, 0},
		{"delete it again", map[string]any{"MessageType": "DeletePairRecord", "PairRecordID": udid15}, 2},
	} {
		if got := askMux(t, conn, c.msg); got["MessageType"] != "Result" || got["Number"] != c.want {
			t.Errorf("%s: %v, want result %d", c.name, got, c.want)
		}
	}
	if got := askMux(t, conn, map[string]any{"MessageType": "ReadBUID"}); got["BUID"] != keys.systemBUID {
		t.Errorf("BUID %v, want %s", got, keys.systemBUID)
	}
}

func TestPairRecordHoldsWhatBothLibrariesNeed(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"))
	answer := askMux(t, dialMux(t), map[string]any{"MessageType": "ReadPairRecord", "PairRecordID": udid15})
	data, _ := answer["PairRecordData"].([]byte)
	var record map[string]any
	if _, err := plist.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"DeviceCertificate", "HostCertificate", "RootCertificate"} {
		if b, _ := record[key].([]byte); !bytes.HasPrefix(b, []byte("-----BEGIN CERTIFICATE-----")) {
			t.Errorf("%s is %.40q, want a PEM certificate", key, b)
		}
	}
	for _, key := range []string{"HostPrivateKey", "RootPrivateKey"} {
		if b, _ := record[key].([]byte); !bytes.HasPrefix(b, []byte("-----BEGIN RSA PRIVATE KEY-----")) {
			t.Errorf("%s is %.40q, want an RSA key in PEM", key, b)
		}
	}
	for _, key := range []string{"HostID", "SystemBUID", "WiFiMACAddress"} {
		if s, _ := record[key].(string); s == "" {
			t.Errorf("%s is missing", key)
		}
	}
	if b, _ := record["EscrowBag"].([]byte); len(b) != 32 {
		t.Errorf("EscrowBag has %d bytes, want 32", len(b))
	}
}

func TestListenersAreListedWithTheirNames(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"))
	listener := dialMux(t)
	askMux(t, listener, map[string]any{"MessageType": "Listen", "ProgName": "watcher", "BundleID": "org.example.watcher"})
	if m, err := readMux(listener); err != nil || m.tag != 0 || m.body["MessageType"] != "Attached" {
		t.Fatalf("after Listen: %v, %v; want Attached with tag 0", m, err)
	}
	list, _ := askMux(t, dialMux(t), map[string]any{"MessageType": "ListListeners"})["ListenerList"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["ProgName"] != "watcher" {
		t.Errorf("listeners %v, want the one", list)
	}
}

func TestAListenerThatNeverReadsIsCutOffAndHoldsUpNobody(t *testing.T) {
	l := startLab(t, DefaultDevice(udid15, "15.8"))
	listener := dialMux(t)
	askMux(t, listener, map[string]any{"MessageType": "Listen"})
	for range 4000 { // what fits into the socket and the queue, and more
		apply(t, l, udid15, Fault{Kind: "disconnect"})
		apply(t, l, udid15, Fault{Kind: "connect"})
		if l.mu.Lock(); len(l.listeners) == 0 {
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
	t.Error("the listener is still there")
}

func TestUsbmuxTellsAClientOfTheOldProtocolSo(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"))
	conn := dialMux(t)
	// A binary Listen request: 16 bytes, version 0, message 3, tag 5.
	conn.Write([]byte{16, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0})
	got, err := io.ReadAll(conn)
	want := []byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0} // result 6: bad version
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("% x, %v, want % x", got, err, want)
	}
}

func TestASocketThatAKilledLabLeftBehindIsReplacedOneInUseIsNot(t *testing.T) {
	path := shortPath(t)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if _, err := listen("unix:" + path); err == nil {
		t.Error("a socket in use was taken")
	}
	ln.Close()
	again, err := listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("a file of somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen("unix:" + path); err == nil {
		t.Error("a plain file was replaced by a socket")
	}
}

func muxBytes(length uint32, rest ...byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, length), rest...)
}

// stillLab is a lab in which nothing goes on by itself, so that fuzzing sees the same coverage each time.
func stillLab(f *testing.F) *Lab {
	l, err := newLab(Config{Speed: 1, Devices: []DeviceConfig{DefaultDevice(udid15, "15.8")}}, keys, zerolog.Nop())
	if err != nil {
		f.Fatal(err)
	}
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	return l
}

func FuzzReadMux(f *testing.F) {
	f.Add(muxBytes(16, 1, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0))
	f.Add(muxBytes(0))
	f.Add(muxBytes(0xffffffff, 1, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0))
	var ok bytes.Buffer
	if err := writeMux(&ok, 3, map[string]any{"MessageType": "Connect", "DeviceID": uint64(1), "PortNumber": uint64(32498)}); err != nil {
		f.Fatal(err)
	}
	f.Add(ok.Bytes())
	l := stillLab(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			m, err := readMux(r)
			if err != nil {
				return
			}
			l.muxTarget(m.body)
			if answer := l.muxAnswer(m.body); answer["MessageType"] == "Result" && answer["Number"] == nil {
				t.Errorf("a result without a number to %v", m.body)
			}
		}
	})
}
