package device

import "context"

// notificationProxyService carries Darwin notifications. go-ios only observes them.
const notificationProxyService = "com.apple.mobile.notification_proxy"

// PostNotification posts a Darwin notification on the phone. It has no answer of its own: that it was read is known by the proxy's goodbye,
// which comes after it.
func (p *Phone) PostNotification(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	conn, err := p.plain.connect(ctx, notificationProxyService)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer bound(ctx, conn)()
	for _, m := range []map[string]any{{"Command": "PostNotification", "Name": name}, {"Command": "Shutdown"}} {
		if err == nil {
			err = writePlist(conn, m)
		}
	}
	var m map[string]any
	for err == nil && m["Command"] != "ProxyDeath" {
		m = nil // a decoder adds to a map that there is
		err = readPlist(conn, &m)
	}
	if err != nil {
		return lostOr(ctx, err, "notification proxy of "+p.UDID)
	}
	return nil
}
