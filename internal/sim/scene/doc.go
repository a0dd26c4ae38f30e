// Package scene is the physical timeline of one simulated iPhone: when frames reach the glass, which apps run, when the phone
// sleeps or restarts, and what its clocks show. Everything follows from a Spec (YAML), the OS version and a seed, so two runs of the
// same scene give the same frames to the tick; only commands given from outside (Device.Do) add to it.
//
// Facts it keeps to (spec/wire.md): lifetimes overlap; the previous of a frame is the last end on that display, to the tick; ends
// are near, not on, multiples of the refresh interval; the category is the stalled one when a lifetime is longer than its buffers
// allow.
//
// Choices where nothing is known: frame seeds and swap ids come from one counter each of the render server, so on one display they
// have no holes while it is the only one, and holes as soon as another display is on. A display that is switched on again starts
// without a previous frame, as after a restart.
package scene

// Doc describes a scene's YAML to people.
const Doc = `A scene is what one simulated iPhone does, step after step. It is a list of steps, or a mapping:

  seed: 7                  another seed gives other jitter, pids and seeds (default: from the device)
  timebase: 125/3          ns per tick of the mach clocks
  drift_ppm: 20            the phone's clock runs this much faster than the host's; negative is slower
  uptime: 300h             since the phone's start, without sleep, when the scene begins (at least 10s)
  slept: 7403s             how far mach continuous time is ahead of mach absolute time when the scene begins
  app: {bundle: com.example.app, name: Example, running: true}
  noise: 20                signposts and logs of others a second (0 to 10000)
  loop: true               begin again after the last step (default: the last lasting step goes on for ever)
  steps: [ ... ]

Steps that last:
  {for: 10s, hz: 60}                                 every refresh shows a new frame; hz 1 to 120
  {for: 10s, hz: 60, fps: 30}                        a new frame every second refresh; fps divides hz
  {for: 5s, hz: 120, jank: {every: 12, delay: 80ms}} every 12th frame is late by 80 ms, rounded up to whole refreshes
  {for: 4s, switch: [120, 60, 80, 40], dwell: 500ms} variable refresh: the rates in turn, each for dwell (default 500ms)
  {for: 2s, hz: 60, refresh: unknown}                the frames do not tell their refresh interval
  {for: 3s, idle: true}                              nothing on the built-in display changes
  {event: sleep, for: 30s}                           all dark; mach absolute time stands still
  {event: reboot, down: 5s}                          gone for 5 s, then a new start: both mach clocks, pids and seeds begin anew,
                                                     no app runs, display 2 is off
Steps that take no time:
  {event: launch}       the app comes to the foreground, started if it does not run; bundle: and name: choose another app
  {event: relaunch}     the app is ended and started again, with a new pid
  {event: terminate}    the app ends; SpringBoard shows the home screen
  {event: background}   the home screen is shown, the app goes on running
  {event: foreground}   the app comes back
  {event: display2, on: true, hz: 60}                a second display, with frames of its own until on: false

Durations are written 80ms, 10s, 5m or 2h.
`
