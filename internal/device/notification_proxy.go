package device

import (
	"context"

	"github.com/danielpaulus/go-ios/ios"
)

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
	err = guarded(func() error {
		rw := ios.NewPlistCodecReadWriter(conn, conn)
		for _, m := range []map[string]any{{"Command": "PostNotification", "Name": name}, {"Command": "Shutdown"}} {
			if err := rw.Write(m); err != nil {
				return err
			}
		}
		for {
			var m map[string]any
			if err := rw.Read(&m); err != nil || m["Command"] == "ProxyDeath" {
				return err
			}
		}
	})
	if err != nil {
		return lostOr(ctx, err, "notification proxy of "+p.UDID)
	}
	return nil
}
