package sim

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
)

// service is what a device offers under a name. serve talks to one client until it leaves; it gets a connection on which TLS, where
// there is any, has been set up already.
type service struct {
	name      string
	developer bool // comes with the developer image
	serve     func(ctx context.Context, d *Device, conn net.Conn) error
}

// lockdownServices are those that lockdownd starts. com.apple.instruments.remoteserver is not among them: releases that have the secure
// one refuse it, and clients then ask for that.
var lockdownServices = []service{
	{imageMounterName, false, serveImageMounter},
	{installationProxyName, false, serveInstallationProxy},
	{instrumentsName, true, serveInstruments},
	{coreDeviceProxyName, false, serveCoreDeviceProxy},
	{afcName, false, serveAFC},
	{houseArrestName, false, serveHouseArrest},
	{notificationProxyName, false, serveNotificationProxy},
}

// opener talks over a connection that was made to one of a device's ports.
type opener func(ctx context.Context, conn net.Conn) error

// offersLocked reports whether a service is there, as far as the developer image goes.
func (d *Device) offersLocked(s service) bool {
	return !s.developer || d.state.DeveloperImage && d.state.DeveloperMode
}

// firstServicePort is where the ports begin that lockdownd hands out.
const firstServicePort = 49152

// open is what listens on a port, or the reason why nothing does.
func (d *Device) open(port uint16) (opener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.attached {
		return nil, fmt.Errorf("%s is not attached", d.UDID)
	}
	if port == lockdownPort {
		return d.unlessHanging(lockdownName, func(ctx context.Context, conn net.Conn) error { return serveLockdown(ctx, d, conn) }), nil
	}
	if s, started := d.ports[port]; started {
		return s.open(d), nil
	}
	return nil, fmt.Errorf("nothing listens on port %d of %s", port, d.UDID)
}

// startedService is a service that lockdownd has started for a host.
type startedService struct {
	service
	host *pairing
}

func (s startedService) open(d *Device) opener {
	return d.unlessHanging(s.name, func(ctx context.Context, conn net.Conn) error {
		secure := tls.Server(conn, s.host.tls())
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("%s: TLS: %w", s.name, err)
		}
		defer secure.CloseWrite() // so that the client can tell a goodbye from a cable that was pulled
		return s.serve(ctx, d, secure)
	})
}

// unlessHanging lets a service that hangs accept its clients, and nothing else.
func (d *Device) unlessHanging(name string, open opener) opener {
	return func(ctx context.Context, conn net.Conn) error {
		if d.hangs(name) {
			return swallow(conn)
		}
		return open(ctx, conn)
	}
}

// swallow takes everything and says nothing, until the client or the cable gives up.
func swallow(conn net.Conn) error {
	_, err := io.Copy(io.Discard, conn)
	return err
}

// startService gives a service a port, or lockdownd's word for why not.
func (d *Device) startService(name string, host *pairing) (port uint16, word string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range lockdownServices {
		if s.name != name {
			continue
		}
		// From iOS 17 on, developer services are reached through a tunnel only.
		if s.developer && (!d.offersLocked(s) || d.os.Major >= firstTunnelMajor) || name == coreDeviceProxyName && !d.makesTunnelsLocked() {
			return 0, errInvalidService
		}
		for port, started := range d.ports {
			if started.name == name && started.host == host {
				return port, ""
			}
		}
		port = uint16(firstServicePort + len(d.ports))
		d.ports[port] = startedService{s, host}
		return port, ""
	}
	return 0, errInvalidService
}
