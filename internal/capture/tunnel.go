package capture

import (
	"context"
	"os/exec"
	"sync"
	"time"

	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/tunnel"
)

const (
	// tunnelPatience is how long the first tunnel may take.
	tunnelPatience = 20 * time.Second
	tunnelLook     = 100 * time.Millisecond
)

// ownTunnel starts a tunnel agent for this recording where the phone needs a tunnel and no agent has one. stop ends it.
func (s *source) ownTunnel(ctx context.Context, worker func(ctx context.Context, udid string) *exec.Cmd) (stop func(), err error) {
	nothing := func() {}
	if worker == nil {
		return nothing, nil
	}
	entry, err := device.Find(ctx, s.udid)
	if err != nil {
		return nothing, err
	}
	facts, err := device.ReadFacts(ctx, entry)
	if err != nil || !facts.TunnelByCable() {
		return nothing, err
	}
	if err := s.askAgent(ctx, entry.UDID); device.CodeOf(err) != device.NeedsTunnel {
		return nothing, nil // the agent's tunnel, or its trouble, is what connecting will meet
	}
	ln, agent, err := tunnel.Listen(device.Agent{Host: "127.0.0.1"})
	if err != nil {
		return nothing, err
	}
	s.log.Info().Stringer("agent", agent).Msg("no agent has a tunnel to the phone; this recording runs its own")
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	supervisor := &tunnel.Supervisor{Worker: worker, Only: entry.UDID}
	var all sync.WaitGroup
	all.Go(func() { supervisor.Run(running) })
	all.Go(func() { tunnel.Serve(running, ln, supervisor) })
	stop = func() {
		end()
		all.Wait()
	}
	s.o.Agent = agent
	waiting, enough := context.WithTimeout(ctx, tunnelPatience)
	defer enough()
	for told := false; ; {
		if _, up, why := supervisor.Tunnel(entry.UDID); up {
			return stop, nil
		} else if waiting.Err() != nil {
			stop()
			return nothing, &device.Problem{Code: device.NeedsTunnel, What: "no tunnel to " + entry.UDID + " can be made", Err: why,
				Remedy: "unlock the phone, and see `framebridge tunnel -v`"}
		} else if why != nil && !told {
			told = true
			s.notice("the tunnel is not there yet: " + why.Error())
		}
		select {
		case <-time.After(tunnelLook):
		case <-waiting.Done():
		}
	}
}

// agentPatience is how long an agent that has no tunnel to the phone is given: it may be making one.
const agentPatience = 2 * time.Second

func (s *source) askAgent(ctx context.Context, udid string) (err error) {
	for deadline := time.Now().Add(agentPatience); ; {
		asking, cancel := context.WithTimeout(ctx, device.StepTimeout)
		_, err = s.o.Agent.Find(asking, udid)
		cancel()
		if device.CodeOf(err) != device.NeedsTunnel || time.Now().After(deadline) || !s.o.Agent.Answers(ctx) {
			return err
		}
		select {
		case <-time.After(tunnelLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
