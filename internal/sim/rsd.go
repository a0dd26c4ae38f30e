package sim

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/google/uuid"

	"github.com/framebridge/framebridge/internal/remotexpc"
)

// Remote Service Discovery: what a phone of iOS 17 or later offers behind a tunnel, and on which ports.
const rsdName = "rsd" // for faults, like lockdownd

// remoteService is a service as service discovery lists it. It speaks without TLS: the tunnel is secure.
type remoteService struct {
	service
	entitlement string         // that a client needs
	properties  map[string]any // nil where there are none
}

// Names of remote services that lockdownd does not have.
const (
	dtServiceHubName   = "com.apple.instruments.dtservicehub"
	remoteLockdownName = "com.apple.mobile.lockdown.remote.trusted"
	shimSuffix         = ".shim.remote" // of lockdownd's services that are reached through the tunnel
)

var remoteServices []remoteService

func init() {
	trusted := remoteLockdownName
	xpc := func(features ...any) map[string]any {
		return map[string]any{"Features": append([]any{}, features...), "ServiceVersion": uint64(1), "UsesRemoteXPC": true}
	}
	remoteServices = []remoteService{
		{service{dtServiceHubName, true, serveServiceHub}, "com.apple.private.dt.instruments.dtservicehub.client",
			map[string]any{"Features": []any{"com.apple.dt.profile"}, "version": uint64(1)}},
		{service{remoteLockdownName, false, serveRemoteLockdown}, trusted, map[string]any{"ServiceVersion": uint64(1), "UsesRemoteXPC": true}},
		{service{fileControlName, true, serveFileControl}, "com.apple.private.CoreDevice.canTransferFilesToDevice", xpc("com.apple.coredevice.feature.transferFiles")},
		{service{fileDataName, true, serveFileData}, "com.apple.private.CoreDevice.canTransferFilesToDevice", xpc()},
	}
	for _, s := range lockdownServices {
		if !s.developer && s.name != coreDeviceProxyName {
			remoteServices = append(remoteServices, remoteService{service{s.name + shimSuffix, false, shim(s)}, trusted, nil})
		}
	}
}

// shim serves one of lockdownd's services to a client that checks in first.
func shim(s service) func(context.Context, *Device, net.Conn) error {
	return func(ctx context.Context, d *Device, conn net.Conn) error {
		if err := checkIn(ctx, d, s.name, conn); err != nil {
			return err
		}
		return s.serve(ctx, d, conn)
	}
}

// checkIn answers a client's RSDCheckin, and tells it that the service has started.
func checkIn(ctx context.Context, d *Device, name string, conn net.Conn) error {
	request, err := readPlist(conn)
	if err != nil {
		return err
	}
	if got := str(request, "Request"); got != "RSDCheckin" {
		return fmt.Errorf("%s: expected a client that checks in, found the request %q", name, got)
	}
	if err := d.beforeAnswer(ctx, name); err != nil {
		return err
	}
	for _, answer := range []string{"RSDCheckin", "StartService"} {
		if err := writePlist(conn, map[string]any{"Request": answer}); err != nil {
			return err
		}
	}
	return nil
}

func serveServiceHub(ctx context.Context, d *Device, conn net.Conn) error {
	return serveDTX(ctx, d, dtServiceHubName, conn)
}

// serveDiscovery tells a client what the phone offers now, and keeps the connection until the client leaves.
func (t *tunnel) serveDiscovery(ctx context.Context, conn net.Conn) error {
	c, err := acceptXPC(conn)
	if err != nil {
		return fmt.Errorf("service discovery: %w", err)
	}
	if err := t.d.beforeAnswer(ctx, rsdName); err != nil {
		return err
	}
	if err := c.send(remotexpc.ClientServer, t.handshake()); err != nil {
		return fmt.Errorf("service discovery: %w", err)
	}
	for {
		if _, err := c.receive(); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("service discovery: %w", err)
		}
	}
}

func (t *tunnel) handshake() map[string]any {
	services := map[string]any{}
	for port, s := range t.ports {
		if !t.d.offers(s.service) || t.d.missing(s.name) {
			continue
		}
		entry := map[string]any{"Port": strconv.Itoa(int(port)), "Entitlement": s.entitlement}
		if s.properties != nil {
			entry["Properties"] = s.properties
		}
		services[s.name] = entry
	}
	return map[string]any{"MessageType": "Handshake", "MessagingProtocolVersion": uint64(3), "Properties": t.d.properties(), "Services": services}
}

// properties are what service discovery tells of the phone.
func (d *Device) properties() map[string]any {
	open, trusted := d.openValues(), d.trustedValues()
	boot := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %d", d.UDID, d.status().Boot))
	m := map[string]any{
		"AppleInternal": false, "BootSessionUUID": boot.String(), "DeviceSupportsLockdown": true, "HumanReadableProductVersionString": d.OS,
		"IsUIBuild": true, "IsVirtualDevice": false, "MobileDeviceMinimumVersion": "1600", "OSInstallEnvironment": false, "OSVersion": d.OS,
		"RemoteXPCVersionFlags": uint64(0x0100000000000004), "SensitivePropertiesVisible": true, "StoreDemoMode": false,
		"SupplementalBuildVersion": open["BuildVersion"], "ThinningProductType": d.Product,
		"RegionInfo": trusted["RegionInfo"], "SerialNumber": trusted["SerialNumber"], "EthernetMacAddress": d.wifiMAC(),
	}
	for _, key := range []string{"BuildVersion", "DeviceClass", "ProductName", "ProductType", "UniqueChipID", "UniqueDeviceID", simulatedKey} {
		m[key] = open[key]
	}
	if hw, known := models[d.Product]; known {
		m["CPUArchitecture"], m["ChipID"], m["HWModel"], m["ModelNumber"] = hw.architecture, hw.chip, hw.board, hw.number
	}
	return m
}
