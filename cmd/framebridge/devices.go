package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/device"
)

// attached is one line of `devices`.
type attached struct {
	device.Facts
	Usable    bool        `json:"usable"`
	OwnTunnel bool        `json:"ownTunnel"` // no agent has a tunnel: a recording makes its own
	Code      device.Code `json:"code"`      // why not, for programs
	Remedy    string      `json:"remedy"`    // what mends it
	What      string      `json:"what"`
}

func newDevices() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the attached phones, and whether each can be recorded",
		Long: `Lists the phones that usbmuxd knows: UDID, product, iOS version, how they are connected, and whether a recording can
start now. Where one cannot, the last column says why; "framebridge doctor UDID" says how to mend it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := listAttached(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
			}
			return printAttached(cmd.OutOrStdout(), list)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "a JSON array")
	return cmd
}

func listAttached(ctx context.Context) ([]attached, error) {
	entries, err := device.List(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]attached, len(entries))
	var all sync.WaitGroup // one that is silent does not hold up the others
	for i, e := range entries {
		all.Go(func() { list[i] = askAttached(ctx, e) })
	}
	all.Wait()
	return list, ctx.Err()
}

func askAttached(ctx context.Context, e device.Entry) attached {
	a := attached{Facts: device.Facts{UDID: e.UDID, Connection: e.Connection}}
	phone, err := device.Open(ctx, e, device.DefaultAgent())
	if phone != nil {
		a.Facts = phone.Facts
	}
	if err == nil {
		err = phone.CheckDeveloperServices(ctx)
	}
	if err == nil {
		_, err = phone.CheckTunnel(ctx)
	}
	a.OwnTunnel = device.CodeOf(err) == device.NeedsTunnel && a.TunnelByCable() && a.NeedsCable() == nil
	if a.OwnTunnel {
		err = nil
	}
	a.Usable = err == nil
	if err != nil {
		a.Code, a.What, a.Remedy = explain(err)
	}
	return a
}

func printAttached(w io.Writer, list []attached) error {
	if len(list) == 0 {
		fmt.Fprintln(w, "no phone is attached: plug one in by cable and unlock it, or try `framebridge demo`")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "UDID\tNAME\tPRODUCT\tIOS\tBY\tSTATE")
	for _, a := range list {
		state := "ready"
		if a.OwnTunnel {
			state = "ready (makes its own tunnel)"
		}
		if !a.Usable {
			state = string(a.Code)
		}
		if a.Simulated {
			state += " (simulated)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", a.UDID, a.Name, a.ProductType, a.OSVersion, a.Connection, state)
	}
	return t.Flush()
}
