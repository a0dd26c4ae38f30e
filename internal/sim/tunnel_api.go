package sim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"time"
)

// TunnelInfo is what a tunnel agent tells of a tunnel, as go-ios's does.
type TunnelInfo struct {
	Address       string `json:"address"` // the phone's, in the tunnel
	RSDPort       int    `json:"rsdPort"`
	UDID          string `json:"udid"`
	Userspace     bool   `json:"userspaceTun"`
	UserspacePort int    `json:"userspaceTunPort"` // on the agent's host
}

// agentName is what faults call the agent by.
const agentName = "tunnel-agent"

var errAgentTwice = errors.New("the lab has a tunnel agent already")

// ListenTunnels starts a tunnel agent at host:port, and returns the values of GO_IOS_AGENT_HOST and GO_IOS_AGENT_PORT that lead there. It
// keeps a tunnel to every phone that is to have one.
func (l *Lab) ListenTunnels(address string) (host string, port int, err error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return "", 0, err
	}
	at := ln.Addr().(*net.TCPAddr)
	server := &http.Server{Handler: l.agentAPI(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: stdlog.New(io.Discard, "", 0), BaseContext: func(net.Listener) context.Context { return l.ctx }}
	l.mu.Lock()
	if l.agent != "" {
		err = errAgentTwice
	} else {
		l.agent = at.IP.String()
	}
	l.mu.Unlock()
	if err == nil {
		err = l.keep(server, func() {
			if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				l.log.Error().Err(err).Msg("the tunnel agent ended")
			}
		})
	}
	if err != nil {
		ln.Close()
		return "", 0, err
	}
	for _, d := range l.devices {
		d.live() // so that the tunnels are there
	}
	return at.IP.String(), at.Port, nil
}

// agentAPI is go-ios's, without its /shutdown.
func (l *Lab) agentAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {}) // ListenTunnels has looked at every phone
	mux.HandleFunc("GET /tunnels", func(w http.ResponseWriter, r *http.Request) {
		list, broken := []TunnelInfo{}, false
		for _, d := range l.devices {
			if d.beforeAnswer(r.Context(), agentName) != nil {
				return
			}
			if t, ok := d.tunnelInfo(); ok {
				list = append(list, t)
			}
			broken = broken || d.agentBroken()
		}
		agentAnswer(w, list, broken)
	})
	mux.HandleFunc("GET /tunnel/{udid}", func(w http.ResponseWriter, r *http.Request) {
		d := l.device(r.PathValue("udid"))
		if d == nil {
			tunnelNotFound(w)
			return
		}
		if d.beforeAnswer(r.Context(), agentName) != nil {
			return
		}
		t, ok := d.tunnelInfo()
		if broken := d.agentBroken(); ok || broken {
			agentAnswer(w, t, broken)
			return
		}
		tunnelNotFound(w)
	})
	mux.HandleFunc("DELETE /tunnel/{udid}", func(w http.ResponseWriter, r *http.Request) {
		d := l.device(r.PathValue("udid"))
		if d == nil || !d.dropTunnel() {
			tunnelNotFound(w)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func tunnelNotFound(w http.ResponseWriter) {
	http.Error(w, "tunnel not found", http.StatusNotFound)
}

// agentAnswer writes v, or, where the agent is broken, what nobody can read.
func agentAnswer(w http.ResponseWriter, v any, broken bool) {
	w.Header().Set("Content-Type", "application/json")
	if broken {
		io.WriteString(w, "{\"address\": \x00\xff")
		return
	}
	json.NewEncoder(w).Encode(v) // an error is the client's, which has gone
}

// tunnelInfo is the tunnel that the agent has to a phone.
func (d *Device) tunnelInfo() (info TunnelInfo, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.told
	if t == nil {
		return info, false
	}
	return TunnelInfo{Address: t.address.String(), RSDPort: int(t.rsdPort), UDID: d.UDID, Userspace: t.userspacePort != 0, UserspacePort: t.userspacePort}, true
}

// dropTunnel ends the agent's tunnel to a phone; the agent makes another. It reports whether there was one.
func (d *Device) dropTunnel() (dropped bool) {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	told := d.told
	d.endTunnelsLocked(func(t *tunnel) bool { return t == told })
	return told != nil
}
