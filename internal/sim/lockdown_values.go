package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// simulatedKey is a value that no real phone has. Whoever reads it, through the ordinary protocol, knows that nothing here was measured.
const simulatedKey = "FramebridgeSimulated"

// model is what lockdownd tells of a product's hardware.
type model struct {
	board        string // HardwareModel
	architecture string
	chip         uint64 // ChipID
	number       string
}

var models = map[string]model{
	"iPhone8,1":  {"N71AP", "arm64", 0x8000, "MKQ52"},
	"iPhone10,3": {"D22AP", "arm64", 0x8015, "MQA52"},
	"iPhone12,1": {"N104AP", "arm64e", 0x8030, "MWLT2"},
	"iPhone14,5": {"D17AP", "arm64e", 0x8110, "MLPF3"},
	"iPhone15,2": {"D73AP", "arm64e", 0x8120, "MPXV3"},
	"iPhone16,1": {"D83AP", "arm64e", 0x8130, "MTUX3"},
	"iPhone17,1": {"D93AP", "arm64e", 0x8140, "MYNK3"},
}

// facts that follow from a device's UDID, so that a phone keeps its addresses from run to run.
func (d *Device) seed() [32]byte { return sha256.Sum256([]byte(d.UDID)) }

func (d *Device) wifiMAC() string {
	s := d.seed()
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", s[0], s[1], s[2], s[3], s[4])
}

// ecid is the chip's number: the second half of a new UDID.
func (d *Device) ecid() uint64 {
	if _, tail, ok := strings.Cut(d.UDID, "-"); ok {
		if n, err := strconv.ParseUint(tail, 16, 64); err == nil {
			return n
		}
	}
	s := d.seed()
	return binary.LittleEndian.Uint64(s[:]) >> 12
}

// values are what lockdownd tells of a domain; a host without a session hears only what a phone shows to everybody.
func (d *Device) values(domain string, trusted bool) map[string]any {
	switch domain {
	case "":
		open := d.openValues()
		if trusted {
			maps.Copy(open, d.trustedValues())
		}
		return open
	case "com.apple.security.mac.amfi":
		return map[string]any{"DeveloperModeStatus": d.developerMode()}
	case "com.apple.international":
		return map[string]any{"Language": "en", "Locale": "en_US", "Keyboard": "en_US"}
	case "com.apple.mobile.battery":
		return map[string]any{"BatteryCurrentCapacity": uint64(100), "BatteryIsCharging": false, "ExternalConnected": true, "FullyCharged": true, "HasBattery": true}
	case "com.apple.disk_usage":
		return map[string]any{"TotalDiskCapacity": uint64(128_000_000_000), "TotalDataCapacity": uint64(110_000_000_000), "TotalDataAvailable": uint64(64_000_000_000)}
	}
	return map[string]any{}
}

func (d *Device) openValues() map[string]any {
	m := map[string]any{
		"DeviceName": d.Name, "DeviceClass": "iPhone", "ProductType": d.Product, "ProductVersion": d.OS, "BuildVersion": buildVersion(d.OS, d.os.Major),
		"ProductName": "iPhone OS", "UniqueDeviceID": d.UDID, "UniqueChipID": d.ecid(),
		"DevicePublicKey": d.lab.ids.publicPEM(), "WiFiAddress": d.wifiMAC(), "ProtocolVersion": "2",
		"ActivationState": "Activated", "HostAttached": true, "ProductionSOC": true, "SupportedDeviceFamilies": []any{uint64(1)},
		simulatedKey: true,
	}
	if hw, known := models[d.Product]; known {
		m["HardwareModel"], m["CPUArchitecture"], m["ChipID"], m["ModelNumber"] = hw.board, hw.architecture, hw.chip, hw.number
	}
	return m
}

func (d *Device) trustedValues() map[string]any {
	s := d.seed()
	now := d.lab.clock.wall()
	return map[string]any{
		"SerialNumber": fmt.Sprintf("SIM%09X", binary.BigEndian.Uint32(s[8:])), "PasswordProtected": d.locked(), "TrustedHostAttached": true,
		"BluetoothAddress": strings.Replace(d.wifiMAC(), "02:", "06:", 1), "RegionInfo": "ZD/A", "BrickState": false,
		"TelephonyCapability": true, "TimeZone": "UTC", "TimeZoneOffsetFromUTC": 0.0, "Uses24HourClock": true,
		"TimeIntervalSince1970": float64(now.UnixNano()) / float64(time.Second),
	}
}

// builds are the builds of the releases that the lab knows best; any other gets a made-up one of the right form.
var builds = map[string]string{"15.8": "19H370", "16.7": "20H19", "17.5": "21F79", "18.5": "22F76", "26.0": "23A341"}

func buildVersion(os string, major int) string {
	if b, known := builds[os]; known {
		return b
	}
	if major >= 26 { // numbers were skipped from 18 to 26, build numbers were not
		major -= 7
	}
	return fmt.Sprintf("%dZ1", major+4)
}
