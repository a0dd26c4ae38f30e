package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/internal/sim/tapenc"
)

// Duration is lab time in a script or command, written 80ms, 10s or 2h.
type Duration time.Duration

func (d Duration) lab() time.Duration { return time.Duration(d) }

// UnmarshalText reads a duration from YAML and JSON.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is no duration: write one such as 80ms, 10s or 2h", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.lab().String()), nil }

// Fault is something that is done to a phone, by a script or by command. FaultHelp says which of its parts a kind takes.
type Fault struct {
	Kind    string   `yaml:"kind" json:"kind"`
	At      Duration `yaml:"at" json:"-"` // of a script: lab time since the lab began
	For     Duration `yaml:"for" json:"for,omitzero"`
	Count   int      `yaml:"count" json:"count,omitempty"`
	Service string   `yaml:"service" json:"service,omitempty"`
	Delay   Duration `yaml:"delay" json:"delay,omitzero"`
	Error   string   `yaml:"error" json:"error,omitempty"`
	Bundle  string   `yaml:"bundle" json:"bundle,omitempty"`
	Step    string   `yaml:"step" json:"step,omitempty"` // a step of a scene, as YAML
}

// Ack says what a fault did, and when.
type Ack struct {
	Device string    `json:"device"`
	Kind   string    `json:"kind"`
	Did    string    `json:"did"`
	At     Duration  `json:"at"`   // lab time since the lab began
	Wall   time.Time `json:"wall"` // the same moment on the lab's calendar
}

// faultKind is a kind of fault. do carries it out and says what it did.
type faultKind struct {
	name  string
	takes string // the parts that it may have
	needs string // the part that it must have
	help  string
	do    func(ctx context.Context, d *Device, f Fault) (string, error)
}

// faultKinds are in the order in which they are explained.
var faultKinds []faultKind

func init() {
	tap := func(kind tapenc.FaultKind, done string) func(context.Context, *Device, Fault) (string, error) {
		return func(ctx context.Context, d *Device, f Fault) (string, error) {
			return d.tamper(ctx, kind, max(1, f.Count), done)
		}
	}
	set := func(did string, change func(*State)) func(context.Context, *Device, Fault) (string, error) {
		return func(_ context.Context, d *Device, _ Fault) (string, error) {
			d.update(func() { change(&d.state) })
			return did, nil
		}
	}
	app := func(e scene.EventKind) func(context.Context, *Device, Fault) (string, error) {
		return func(_ context.Context, d *Device, f Fault) (string, error) { return d.step(d.appStep(e, f.Bundle)) }
	}
	faultKinds = []faultKind{
		{"lose", "count", "", "the next payloads of the tap are lost on the way", tap(tapenc.FaultLose, "lost")},
		{"duplicate", "count", "", "the next payloads of the tap come twice", tap(tapenc.FaultDuplicate, "delivered twice")},
		{"corrupt", "count", "", "bytes in the middle of the next payloads are overwritten", tap(tapenc.FaultCorrupt, "corrupted")},
		{"torn", "for", "", "rows are torn between messages, messages into interleaved DTX fragments (for ever, unless for is given)", tear},
		{"stall", "for", "for", "the phone says nothing on any connection, then everything", stall},
		{"disconnect", "for", "", "the cable is pulled, and put back after for", disconnect},
		{"connect", "", "", "the cable is put back", connect},
		{"reboot", "for", "", "the phone restarts and is away for so long (5s); clocks and pids begin anew, the developer image stays", reboot},
		{"image-missing", "", "", "the developer image is not mounted", set("the developer image is gone", func(s *State) { s.DeveloperImage = false })},
		{"image-mounted", "", "", "the developer image is mounted", set("the developer image is mounted", func(s *State) { s.DeveloperImage = true })},
		{"developer-mode-off", "", "", "developer mode is off", set("developer mode is off", func(s *State) { s.DeveloperMode = false })},
		{"developer-mode-on", "", "", "developer mode is on", set("developer mode is on", func(s *State) { s.DeveloperMode = true })},
		{"lock", "", "", "the phone is locked", set("the phone is locked", func(s *State) { s.Locked = true })},
		{"unlock", "", "", "the phone is unlocked", set("the phone is unlocked", func(s *State) { s.Locked = false })},
		{"wifi", "", "", "the phone is connected by Wi-Fi instead of by cable", set("the phone is on Wi-Fi", func(s *State) { s.WiFi = true })},
		{"cable", "", "", "the phone is connected by cable again", set("the phone is on its cable", func(s *State) { s.WiFi = false })},
		{"unpair", "", "", "the phone forgets every host; a host notices when it starts a session", unpair},
		{"trust", "", "", "somebody taps Trust: the next host that pairs is believed", trust},
		{"refuse-session", "for error", "", "lockdownd refuses sessions with error (InvalidHostID)", refuseSession},
		{"slow", "service delay for", "delay", "answers of a service (all, if none is named) are late by delay", slow},
		{"hang", "service for", "service", "a service accepts connections and calls, and never answers or tells anything", hang},
		{"tunnel-restart", "", "", "every tunnel ends, with its connections; the agent makes another, with another address and other ports", tunnelled(tunnelRestart)},
		{"tunnel-gone", "for", "", "every tunnel ends, and none can be made", tunnelled(tunnelGone)},
		{"half-open", "for", "", "tunnels and their connections stay, and nothing gets through; when it is over, they end", tunnelled(halfOpen)},
		{"rsd-refuse", "for", "", "service discovery refuses connections", tunnelled(refuseDiscovery)},
		{"service-missing", "service for", "service", "service discovery leaves a service out", tunnelled(serviceMissing)},
		{"agent-garbage", "for", "", "the tunnel agent answers garbage when asked for the phone's tunnel", tunnelled(agentGarbage)},
		{"launch", "bundle", "", "the app (the scene's, if none is named) comes to the foreground, started if it does not run", app(scene.EventLaunch)},
		{"relaunch", "bundle", "", "the app is ended and started again", app(scene.EventRelaunch)},
		{"terminate", "bundle", "", "the app ends", app(scene.EventTerminate)},
		{"background", "", "", "the home screen is shown", app(scene.EventBackground)},
		{"foreground", "", "", "the scene's app comes back", app(scene.EventForeground)},
		{"scene", "step", "step", "any step of a scene, such as {for: 3s, idle: true}", sceneStep},
		{"clear", "", "", "ends every fault that lasts, but for disconnect", clearFaults},
	}
}

// knownService reports whether slow and hang know a service: a short name of ours, or one of lockdownd's, instruments' or service discovery's.
func knownService(name string) bool {
	return name == lockdownName || name == rsdName || name == agentName || listedService(name) ||
		slices.ContainsFunc(lockdownServices, func(s service) bool { return s.name == name }) ||
		slices.ContainsFunc(channelServices, func(s channelService) bool { return s.name == name })
}

// listedService reports whether service discovery has a service.
func listedService(name string) bool {
	return slices.ContainsFunc(remoteServices, func(s remoteService) bool { return s.name == name })
}

// FaultHelp explains every kind of fault, a line each.
func FaultHelp() string {
	var b strings.Builder
	for _, k := range faultKinds {
		fmt.Fprintf(&b, "  %-19s %-18s %s\n", k.name, k.takes, k.help)
	}
	return b.String()
}

// ErrFault is wrapped by the errors about faults that cannot be.
var ErrFault = errors.New("fault")

// kind finds what f asks for, and checks that f has the parts for it.
func (f Fault) kind() (faultKind, error) {
	i := slices.IndexFunc(faultKinds, func(k faultKind) bool { return k.name == f.Kind })
	if i < 0 {
		return faultKind{}, fmt.Errorf("%w: unknown kind %q: labsim ctl --help lists them", ErrFault, f.Kind)
	}
	k := faultKinds[i]
	for _, part := range []struct {
		name  string
		given bool
	}{{"for", f.For != 0}, {"count", f.Count != 0}, {"service", f.Service != ""}, {"delay", f.Delay != 0},
		{"error", f.Error != ""}, {"bundle", f.Bundle != ""}, {"step", f.Step != ""}} {
		switch {
		case part.given && !slices.Contains(strings.Fields(k.takes), part.name):
			return k, fmt.Errorf("%w: %s takes no %s: leave it out", ErrFault, f.Kind, part.name)
		case !part.given && k.needs == part.name:
			return k, fmt.Errorf("%w: %s needs %s: add it", ErrFault, f.Kind, part.name)
		}
	}
	if f.Count < 0 {
		return k, fmt.Errorf("%w: count %d: expected 1 or more", ErrFault, f.Count)
	}
	if k.name == "service-missing" && !listedService(f.Service) {
		return k, fmt.Errorf("%w: service discovery has no service %q: expected one such as %s", ErrFault, f.Service, dtServiceHubName)
	}
	if f.Service != "" && !knownService(f.Service) {
		return k, fmt.Errorf("%w: no service is called %q: expected %s, %s, %s, or one of lockdownd's, instruments' or service discovery's by its full name",
			ErrFault, f.Service, lockdownName, rsdName, agentName)
	}
	if f.Step != "" {
		if _, err := scene.ParseStep([]byte(f.Step)); err != nil {
			return k, fmt.Errorf("%w: %w", ErrFault, err)
		}
	}
	return k, nil
}

// Apply does f to a phone and returns when it has been done. Faults of payloads wait for a tap to send some: bound ctx.
func (l *Lab) Apply(ctx context.Context, udid string, f Fault) (Ack, error) {
	d := l.device(udid)
	if d == nil {
		return Ack{}, fmt.Errorf("%w: no device has the udid %q", ErrFault, udid)
	}
	return d.apply(ctx, f)
}

func (d *Device) apply(ctx context.Context, f Fault) (Ack, error) {
	k, err := f.kind()
	if err != nil {
		return Ack{}, err
	}
	did, err := k.do(ctx, d, f)
	if err != nil {
		return Ack{}, fmt.Errorf("%s: %w", f.Kind, err)
	}
	d.live() // so that what follows from it has happened too
	at := d.lab.clock.elapsed()
	return Ack{Device: d.UDID, Kind: f.Kind, Did: did, At: Duration(at), Wall: d.lab.clock.wall()}, nil
}

// faults are the ones that last: each has a lab time when it ends.
type faults struct {
	torn, stall time.Duration
	refuse      timedWord
	slow        map[string]timedDelay // by service, "" is all
	hang        map[string]time.Duration

	gone, halfOpen, refuseRSD, garbage time.Duration // of tunnels
	missing                            map[string]time.Duration
}

type timedWord struct {
	until time.Duration
	word  string
}

type timedDelay struct{ until, delay time.Duration }

// until is the lab time when a fault ends that lasts so long; 0 is for ever.
func (d *Device) until(lasts Duration) time.Duration {
	if lasts == 0 {
		return never
	}
	return d.lab.clock.elapsed() + lasts.lab()
}

func lasting(f Fault) string {
	if f.For == 0 {
		return "until it is cleared"
	}
	return "for " + f.For.lab().String()
}

func tear(_ context.Context, d *Device, f Fault) (string, error) {
	d.update(func() { d.faults.torn = d.until(f.For) })
	return "messages are torn " + lasting(f), nil
}

func stall(_ context.Context, d *Device, f Fault) (string, error) {
	d.update(func() { d.faults.stall = d.until(f.For) })
	return "stands still " + lasting(f), nil
}

func disconnect(_ context.Context, d *Device, f Fault) (string, error) {
	d.unplug(d.until(f.For))
	if f.For == 0 {
		return "unplugged until connect", nil
	}
	return "unplugged for " + f.For.lab().String(), nil
}

func connect(_ context.Context, d *Device, _ Fault) (string, error) {
	d.replug()
	return "plugged in", nil
}

func reboot(_ context.Context, d *Device, f Fault) (string, error) {
	down := 5 * time.Second
	if f.For != 0 {
		down = f.For.lab()
	}
	return d.step(scene.Step{Event: scene.EventReboot, For: down})
}

func unpair(_ context.Context, d *Device, _ Fault) (string, error) {
	var n int
	d.update(func() { n = len(d.hosts); clear(d.hosts) })
	return fmt.Sprintf("%d hosts are forgotten", n), nil
}

func trust(_ context.Context, d *Device, _ Fault) (string, error) {
	var err error
	d.update(func() {
		if d.trusts = d.dialog; !d.trusts {
			err = errNoDialog
		}
	})
	return "Trust was tapped: the host can pair now", err
}

func refuseSession(_ context.Context, d *Device, f Fault) (string, error) {
	word := f.Error
	if word == "" {
		word = errInvalidHostID
	}
	d.update(func() { d.faults.refuse = timedWord{d.until(f.For), word} })
	return fmt.Sprintf("sessions are refused with %s %s", word, lasting(f)), nil
}

func slow(_ context.Context, d *Device, f Fault) (string, error) {
	d.update(func() {
		if d.faults.slow == nil {
			d.faults.slow = map[string]timedDelay{}
		}
		d.faults.slow[f.Service] = timedDelay{d.until(f.For), f.Delay.lab()}
	})
	return fmt.Sprintf("answers are %s late %s", f.Delay.lab(), lasting(f)), nil
}

func hang(_ context.Context, d *Device, f Fault) (string, error) {
	d.update(func() {
		if d.faults.hang == nil {
			d.faults.hang = map[string]time.Duration{}
		}
		d.faults.hang[f.Service] = d.until(f.For)
	})
	return f.Service + " never answers " + lasting(f), nil
}

// tunnelled is for faults that only phones behind tunnels can have.
func tunnelled(do func(d *Device, f Fault) string) func(context.Context, *Device, Fault) (string, error) {
	return func(_ context.Context, d *Device, f Fault) (string, error) {
		if d.os.Major < firstTunnelMajor {
			return "", fmt.Errorf("%w: iOS %s has no tunnels: they come with iOS %d", ErrFault, d.OS, firstTunnelMajor)
		}
		return do(d, f), nil
	}
}

func tunnelRestart(d *Device, _ Fault) string {
	d.endTunnels(every)
	d.update(func() { d.retry = 0 })
	return "tunnels have ended"
}

func tunnelGone(d *Device, f Fault) string {
	d.update(func() { d.faults.gone = d.until(f.For) })
	d.endTunnels(every)
	return "there is no tunnel " + lasting(f)
}

func halfOpen(d *Device, f Fault) string {
	d.update(func() {
		d.faults.halfOpen = d.until(f.For)
		for t := range d.tunnels {
			t.dead.Store(true)
		}
	})
	return "nothing gets through tunnels " + lasting(f)
}

func refuseDiscovery(d *Device, f Fault) string {
	d.update(func() { d.faults.refuseRSD = d.until(f.For) })
	return "service discovery is refused " + lasting(f)
}

func serviceMissing(d *Device, f Fault) string {
	d.update(func() {
		if d.faults.missing == nil {
			d.faults.missing = map[string]time.Duration{}
		}
		d.faults.missing[f.Service] = d.until(f.For)
	})
	return f.Service + " is not listed " + lasting(f)
}

func agentGarbage(d *Device, f Fault) string {
	d.update(func() { d.faults.garbage = d.until(f.For) })
	return "the tunnel agent answers garbage " + lasting(f)
}

func clearFaults(_ context.Context, d *Device, _ Fault) (string, error) {
	d.update(func() { d.faults = faults{} })
	return "faults that last are over", nil
}

func sceneStep(_ context.Context, d *Device, f Fault) (string, error) {
	s, err := scene.ParseStep([]byte(f.Step))
	if err != nil {
		return "", err
	}
	return d.step(s)
}

// appStep is what happens to an app, which is the scene's where no other is named.
func (d *Device) appStep(e scene.EventKind, bundle string) scene.Step {
	s := scene.Step{Event: e, Bundle: bundle}
	for _, app := range d.Apps {
		if app.Bundle == bundle {
			s.Name = app.Name
		}
	}
	return s
}

// step lets something happen in the phone's scene, and waits for what follows from it.
func (d *Device) step(s scene.Step) (string, error) {
	at := d.now()
	if err := d.phone.Do(at, s); err != nil {
		return "", err
	}
	d.live()
	switch s.Event {
	case "":
		return "the scene is interrupted for " + s.For.String(), nil
	case scene.EventReboot:
		return "restarts, away for " + s.For.String(), nil
	}
	return string(s.Event), nil
}

// tapPoll is how often, in host time, somebody who waits for payloads looks again.
const tapPoll = 5 * time.Millisecond

// ErrNoTap means that no client has a tap running.
var ErrNoTap = errors.New("no tap is running: start a capture first")

// tamper lets something happen to the next payloads of every tap, and waits until it has.
func (d *Device) tamper(ctx context.Context, kind tapenc.FaultKind, n int, done string) (string, error) {
	var taps []*runningTap
	d.update(func() {
		for t := range d.taps {
			taps = append(taps, t)
		}
	})
	if len(taps) == 0 {
		return "", ErrNoTap
	}
	var did []string
	for _, t := range taps {
		last, err := t.inject(d.now(), tapenc.Fault{Kind: kind, Payloads: n})
		if err != nil {
			return "", err
		}
		// A lost payload is known to be lost when a later one has come.
		for t.sent.Load() <= last+int64(n) {
			select {
			case <-t.gone:
				return "", fmt.Errorf("the tap ended before %d payloads were %s", n, done)
			case <-ctx.Done():
				return "", fmt.Errorf("%w: the tap did not send enough payloads", ctx.Err())
			case <-time.After(tapPoll):
			}
		}
		did = append(did, fmt.Sprintf("payloads %d to %d %s", last+1, last+int64(n), done))
	}
	return strings.Join(did, ", "), nil
}

// What the lasting faults do.

func (d *Device) fault(check func(f *faults, now time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	check(&d.faults, d.lab.clock.elapsed())
}

// stalledFor is how long, in host time, the phone still says nothing.
func (d *Device) stalledFor() (wait time.Duration) {
	// A stall that is cleared must end at once, so that nobody waits for long at a time.
	d.fault(func(f *faults, now time.Duration) { wait = min(d.lab.clock.host(f.stall-now), lifeStep) })
	return wait
}

func (d *Device) tornNow() (torn bool) {
	d.fault(func(f *faults, now time.Duration) { torn = now < f.torn })
	return torn
}

// sessionRefusal is lockdownd's word for why it starts no session now, or "".
func (d *Device) sessionRefusal() (word string) {
	d.fault(func(f *faults, now time.Duration) {
		if now < f.refuse.until {
			word = f.refuse.word
		}
	})
	return word
}

func (d *Device) hangs(service string) (yes bool) {
	d.fault(func(f *faults, now time.Duration) { yes = now < f.hang[service] })
	return yes
}

func (d *Device) refusesDiscovery() (yes bool) {
	d.fault(func(f *faults, now time.Duration) { yes = now < f.refuseRSD })
	return yes
}

// missing reports whether service discovery leaves a service out.
func (d *Device) missing(service string) (yes bool) {
	d.fault(func(f *faults, now time.Duration) { yes = now < f.missing[service] })
	return yes
}

func (d *Device) agentBroken() (yes bool) {
	d.fault(func(f *faults, now time.Duration) { yes = now < f.garbage })
	return yes
}

// slowBy is how late, in host time, a service answers now.
func (d *Device) slowBy(service string) (wait time.Duration) {
	d.fault(func(f *faults, now time.Duration) {
		for _, name := range []string{service, ""} {
			if s := f.slow[name]; now < s.until {
				wait = max(wait, d.lab.clock.host(s.delay))
			}
		}
	})
	return wait
}

// beforeAnswer waits as long as a service is slow, and for ever while it hangs.
func (d *Device) beforeAnswer(ctx context.Context, service string) error {
	for d.hangs(service) {
		if err := sleep(ctx.Done(), lifeStep); err != nil {
			return err
		}
	}
	return sleep(ctx.Done(), d.slowBy(service))
}
