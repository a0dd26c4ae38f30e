package sim

import (
	"context"
	"io"
	"net"
	"slices"
)

// installation_proxy: which apps there are.
const installationProxyName = "com.apple.mobile.installation_proxy"

func serveInstallationProxy(ctx context.Context, d *Device, conn net.Conn) error {
	for {
		request, err := readPlist(conn)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.beforeAnswer(ctx, installationProxyName); err != nil {
			return err
		}
		for _, answer := range d.appAnswers(request) {
			if err := writePlist(conn, answer); err != nil {
				return err
			}
		}
	}
}

func (d *Device) appAnswers(request map[string]any) []map[string]any {
	options, _ := request["ClientOptions"].(map[string]any)
	switch str(request, "Command") {
	case "Browse":
		list := []any{}
		for _, app := range d.Apps {
			if kind := str(options, "ApplicationType"); kind == "" || kind == "Any" || kind == "User" {
				list = append(list, app.info(options))
			}
		}
		return []map[string]any{
			{"Status": "BrowsingApplications", "CurrentIndex": uint64(0), "CurrentAmount": uint64(len(list)), "CurrentList": list},
			{"Status": "Complete"}}
	case "Lookup":
		wanted, all := options["BundleIDs"].([]any)
		found := map[string]any{}
		for _, app := range d.Apps {
			if !all || slices.Contains(wanted, any(app.Bundle)) {
				found[app.Bundle] = app.info(options)
			}
		}
		return []map[string]any{{"Status": "Complete", "LookupResult": found}}
	}
	return []map[string]any{refusal("UnknownCommand")}
}

// info is what the device tells of an app, reduced to the attributes that were asked for.
func (a App) info(options map[string]any) map[string]any {
	all := map[string]any{
		"CFBundleIdentifier": a.Bundle, "CFBundleName": a.Name, "CFBundleDisplayName": a.Name, "CFBundleExecutable": a.Name,
		"CFBundleVersion": "1", "CFBundleShortVersionString": "1.0", "ApplicationType": "User", "Path": a.path(), "MinimumOSVersion": "15.0",
		"Entitlements": map[string]any{"get-task-allow": true}, "UIFileSharingEnabled": true,
	}
	wanted, some := options["ReturnAttributes"].([]any)
	if !some {
		return all
	}
	for key := range all {
		if !slices.Contains(wanted, any(key)) {
			delete(all, key)
		}
	}
	return all
}

// path is where the phone's scene has the app too.
func (a App) path() string {
	return "/private/var/containers/Bundle/Application/" + a.Name + ".app"
}
