package tunnel

import (
	"context"
	"os/exec"
	"sync"
	"time"

	"github.com/framebridge/framebridge/internal/device"
)

const (
	// ownPatience is how long a tunnel of one's own may take: with what goes before, a trouble shows within ten seconds.
	ownPatience = startTimeout + firstPause
	// agentPatience is how long an agent that has no tunnel to the phone is given: it may be making one.
	agentPatience = 2 * time.Second
	lookAgain     = 100 * time.Millisecond
)

// Ensure gives a program an agent with a tunnel to a phone: the one that there is, or where that has none, or is not there, one of the program's
// own, which ends with stop. The phone must be paired and ready: a tunnel that fails for that reason says less.
func Ensure(ctx context.Context, f device.Facts, agent device.Agent, worker func(ctx context.Context, udid string) *exec.Cmd) (_ device.Agent, stop func(), err error) {
	nothing := func() {}
	if !f.TunnelByCable() || worker == nil {
		return agent, nothing, nil
	}
	if err := ask(ctx, f.UDID, agent); device.CodeOf(err) != device.NeedsTunnel {
		return agent, nothing, ctx.Err() // the agent's tunnel, or its trouble, is what connecting will meet
	}
	if err := f.NeedsCable(); err != nil {
		return agent, nothing, err
	}
	ln, own, err := Listen(device.Agent{Host: "127.0.0.1"})
	if err != nil {
		return agent, nothing, err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	supervisor := &Supervisor{Worker: worker, Only: f.UDID}
	var all sync.WaitGroup
	all.Go(func() { supervisor.Run(running) })
	all.Go(func() { Serve(running, ln, supervisor) })
	stop = func() {
		end()
		all.Wait()
	}
	waiting, enough := context.WithTimeout(ctx, ownPatience)
	defer enough()
	for {
		_, up, why := supervisor.Tunnel(f.UDID)
		switch {
		case up:
			return own, stop, nil
		case ctx.Err() != nil:
			stop()
			return agent, nothing, ctx.Err()
		case waiting.Err() != nil:
			stop()
			return agent, nothing, &device.Problem{Code: device.NeedsTunnel, What: "no tunnel to " + f.UDID + " can be made", Err: why,
				Remedy: "unlock the phone and plug it in again; `framebridge tunnel -v` tells more"}
		}
		select {
		case <-time.After(lookAgain):
		case <-waiting.Done():
		}
	}
}

// ask waits a little for an agent that is there to have a tunnel.
func ask(ctx context.Context, udid string, agent device.Agent) (err error) {
	for deadline := time.Now().Add(agentPatience); ; {
		asking, cancel := context.WithTimeout(ctx, device.StepTimeout)
		_, err = agent.Find(asking, udid)
		cancel()
		if device.CodeOf(err) != device.NeedsTunnel || time.Now().After(deadline) || !agent.Answers(ctx) {
			return err
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
