package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/framebridge/framebridge/internal/device"
)

// Listen opens the socket of the info API at the agent's address; port 0 takes any.
func Listen(a device.Agent) (net.Listener, device.Agent, error) {
	if !besideWorkers(a.Host) {
		return nil, a, fmt.Errorf("tunnels can be used from this host only, at %s, and would be told of at %q: unset GO_IOS_AGENT_HOST", workerHost, a.Host)
	}
	ln, err := net.Listen("tcp", a.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, a, &device.Problem{Code: device.PortTaken, What: fmt.Sprintf("%s is taken", a),
			Remedy: "another agent may serve tunnels there already (framebridge doctor tells); else choose another with GO_IOS_AGENT_PORT"}
	}
	if err != nil {
		return nil, a, fmt.Errorf("listen for tunnel info: %w", err)
	}
	a.Port = ln.Addr().(*net.TCPAddr).Port
	return ln, a, nil
}

// workerHost is where workers listen for connections to be carried through their tunnels; clients dial them at the host of the info API.
const workerHost = "localhost"

func besideWorkers(host string) bool {
	api, err1 := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, "0"))
	workers, err2 := net.ResolveTCPAddr("tcp", net.JoinHostPort(workerHost, "0"))
	return err1 == nil && err2 == nil && api.IP.Equal(workers.IP)
}

// Serve answers on the info API as go-ios's agent does, but for /shutdown, until ctx ends.
func Serve(ctx context.Context, ln net.Listener, s *Supervisor) error {
	server := &http.Server{Handler: handler(s), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handler(s *Supervisor) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !s.Looked() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /tunnels", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Tunnels()) })
	mux.HandleFunc("GET /tunnel/{udid}", func(w http.ResponseWriter, r *http.Request) {
		t, ok, why := s.Tunnel(r.PathValue("udid"))
		switch {
		case ok:
			answer(w, t)
		case why != nil:
			http.Error(w, "tunnel not found: "+why.Error(), http.StatusNotFound)
		default:
			http.Error(w, "tunnel not found", http.StatusNotFound)
		}
	})
	mux.HandleFunc("DELETE /tunnel/{udid}", func(w http.ResponseWriter, r *http.Request) {
		if !s.Restart(r.PathValue("udid")) {
			http.Error(w, "tunnel not found", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
