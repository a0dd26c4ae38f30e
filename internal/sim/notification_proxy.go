package sim

import (
	"context"
	"net"
)

// notification_proxy: Darwin notifications, which a host may post and observe. What is posted reaches the phone's apps; nothing on the
// phone posts anything.
const notificationProxyName = "com.apple.mobile.notification_proxy"

func serveNotificationProxy(ctx context.Context, d *Device, conn net.Conn) error {
	for {
		request, err := readPlist(conn)
		if err != nil {
			return noGoodbye(err)
		}
		if err := d.beforeAnswer(ctx, notificationProxyName); err != nil {
			return err
		}
		switch str(request, "Command") {
		case "PostNotification": // has no answer
			if d.lab27 != nil {
				d.lab27.notified(str(request, "Name"))
			}
		case "ObserveNotification":
		case "Shutdown":
			return writePlist(conn, map[string]any{"Command": "ProxyDeath"})
		}
	}
}
